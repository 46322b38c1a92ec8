package table

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/big"

	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/deprecated"
	"github.com/parquet-go/parquet-go/format"
)

// leafKind is what a leaf's cells are.
func leafKind(e *format.SchemaElement) Kind {
	_, value := leafType(e)
	if _, isNull := e.LogicalType.Value.(*format.NullType); isNull {
		return Empty
	}
	example, _ := value(zeroOf(e))
	return kindOf(example)
}

// zeroOf is a value of a leaf's physical type.
func zeroOf(e *format.SchemaElement) parquet.Value {
	switch e.Type.V {
	case format.Boolean:
		return parquet.BooleanValue(false)
	case format.Int32:
		return parquet.Int32Value(0)
	case format.Int64:
		return parquet.Int64Value(0)
	case format.Int96:
		return parquet.Int96Value(deprecated.Int96{0, 0, julianEpoch})
	case format.Float:
		return parquet.FloatValue(0)
	case format.Double:
		return parquet.DoubleValue(0)
	case format.FixedLenByteArray:
		return parquet.FixedLenByteArrayValue(make([]byte, max(0, min(int(e.TypeLength.V), 16))))
	}
	return parquet.ByteArrayValue(nil)
}

// julianEpoch is 1970-01-01 as a Julian day, from which Int96 counts.
const julianEpoch = 2440588

// leafType is the name of a leaf's type and what makes a cell of its values; nil if the type is not supported.
func leafType(e *format.SchemaElement) (string, func(parquet.Value) (any, error)) {
	physical := e.Type.V
	name := physical.String()
	logical := e.LogicalType.Value
	if logical != nil {
		name = logical.String()
	} else if e.ConvertedType.Valid {
		name = fmt.Sprintf("%s of converted type %d", physical, e.ConvertedType.V)
	}
	whole := physical == format.Int32 || physical == format.Int64
	integer := func(v parquet.Value) int64 {
		if physical == format.Int32 {
			return int64(v.Int32())
		}
		return v.Int64()
	}
	plain := func(v parquet.Value) (any, error) { return integer(v), nil }
	time := func(unit int64) func(v parquet.Value) (any, error) {
		if !whole {
			return nil
		}
		return func(v parquet.Value) (any, error) { return micros(integer(v), unit) }
	}
	unitOf := func(u format.TimeUnit) func(v parquet.Value) (any, error) {
		switch u.Value.(type) {
		case *format.MilliSeconds:
			return time(perMilli)
		case *format.MicroSeconds:
			return time(perMicro)
		case *format.NanoSeconds:
			return time(perNano)
		}
		return nil
	}
	text := func(v parquet.Value) (any, error) { return string(v.ByteArray()), nil }
	binaries := func(v parquet.Value) (any, error) { return bytes.Clone(v.ByteArray()), nil }
	decimals := func(scale int32) func(v parquet.Value) (any, error) {
		switch {
		case scale < -1000 || scale > 1000:
			return nil
		case whole:
			return func(v parquet.Value) (any, error) { return decimal(big.NewInt(integer(v)), scale) }
		case physical == format.ByteArray || physical == format.FixedLenByteArray:
			return func(v parquet.Value) (any, error) { return decimal(signed(v.ByteArray()), scale) }
		}
		return nil
	}
	wide := func(bits int, positive bool) func(v parquet.Value) (any, error) {
		switch {
		case !whole:
			return nil
		case positive && bits == 64:
			return func(v parquet.Value) (any, error) { return unsigned(uint64(v.Int64())) }
		case positive && physical == format.Int32:
			return func(v parquet.Value) (any, error) { return int64(uint32(v.Int32())), nil }
		}
		return plain
	}
	strings := physical == format.ByteArray
	switch t := logical.(type) {
	case nil:
		if !e.ConvertedType.Valid {
			break
		}
		switch c := e.ConvertedType.V; c {
		case deprecated.UTF8, deprecated.Enum, deprecated.Json:
			if strings {
				return name, text
			}
			return name, nil
		case deprecated.Decimal:
			return name, decimals(e.Scale.V)
		case deprecated.Date:
			return name, time(perDay)
		case deprecated.TimeMillis, deprecated.TimestampMillis:
			return name, time(perMilli)
		case deprecated.TimeMicros, deprecated.TimestampMicros:
			return name, time(perMicro)
		case deprecated.Uint8, deprecated.Uint16, deprecated.Uint32:
			return name, wide(32, true)
		case deprecated.Uint64:
			return name, wide(64, true)
		case deprecated.Int8, deprecated.Int16, deprecated.Int32, deprecated.Int64:
			return name, wide(64, false)
		case deprecated.Bson:
		default:
			return name, nil
		}
	case *format.StringType, *format.EnumType, *format.JsonType:
		if strings {
			return name, text
		}
		return name, nil
	case *format.DecimalType:
		return name, decimals(t.Scale)
	case *format.DateType:
		return name, time(perDay)
	case *format.TimeType:
		return name, unitOf(t.Unit)
	case *format.TimestampType:
		return name, unitOf(t.Unit)
	case *format.IntType:
		return name, wide(int(t.BitWidth), !t.IsSigned)
	case *format.Float16Type:
		if physical != format.FixedLenByteArray || e.TypeLength.V != 2 {
			return name, nil
		}
		return name, func(v parquet.Value) (any, error) { return half(binary.LittleEndian.Uint16(v.ByteArray())), nil }
	case *format.NullType:
		return name, func(parquet.Value) (any, error) {
			return nil, errors.New("a value in a column of nulls")
		}
	case *format.UUIDType, *format.BsonType, *format.GeometryType, *format.GeographyType: // bytes
	default:
		return name, nil
	}
	switch physical {
	case format.Boolean:
		return name, func(v parquet.Value) (any, error) { return v.Boolean(), nil }
	case format.Int32, format.Int64:
		return name, plain
	case format.Float:
		return name, func(v parquet.Value) (any, error) { return float64(v.Float()), nil }
	case format.Double:
		return name, func(v parquet.Value) (any, error) { return v.Double(), nil }
	case format.ByteArray, format.FixedLenByteArray:
		return name, binaries
	case format.Int96: // a time: nanoseconds of a day, and the day
		return name, func(v parquet.Value) (any, error) {
			t := v.Int96()
			nanos := int64(t[1])<<32 | int64(t[0])
			if nanos < 0 || nanos%1000 != 0 {
				return nil, fmt.Errorf("the time %d ns is no whole number of microseconds", nanos)
			}
			return (int64(int32(t[2]))-julianEpoch)*perDay + nanos/1000, nil
		}
	}
	return name, nil
}

// signed is an integer in two's complement, its highest byte first.
func signed(b []byte) *big.Int {
	n := new(big.Int).SetBytes(b)
	if len(b) > 0 && b[0]&0x80 != 0 {
		n.Sub(n, new(big.Int).Lsh(big.NewInt(1), uint(8*len(b))))
	}
	return n
}
