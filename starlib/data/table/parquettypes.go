package table

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/big"

	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/format"
)

// julianEpoch is 1970-01-01 as a Julian day, from which Int96 counts.
const julianEpoch = 2440588

type leafCell = func(v parquet.Value) (any, error)

// leafType returns the name of a leaf's type, the kind of its cells, and the function that makes a cell from a value; nil if
// the type is not supported.
func leafType(c *parquet.Column, e *format.SchemaElement) (name string, kind Kind, cell leafCell) {
	physical := e.Type.V
	name = physical.String()
	var logical any = e.LogicalType.Value
	if e.LogicalType.Value != nil {
		name = e.LogicalType.Value.String()
	} else if e.ConvertedType.Valid {
		name = fmt.Sprintf("%s of converted type %d", physical, e.ConvertedType.V)
		t := c.Type() // in which the library translates an older writer's annotation
		if ct := t.ConvertedType(); ct == nil || *ct != e.ConvertedType.V || t.LogicalType() == nil {
			return name, Any, nil
		}
		logical = t.LogicalType().Value
	}
	whole := physical == format.Int32 || physical == format.Int64
	array := physical == format.ByteArray || physical == format.FixedLenByteArray
	integer := func(v parquet.Value) int64 {
		if physical == format.Int32 {
			return int64(v.Int32())
		}
		return v.Int64()
	}
	time := func(unit int64) (string, Kind, leafCell) {
		if !whole || unit == 0 {
			return name, Any, nil
		}
		return name, Int, func(v parquet.Value) (any, error) { return micros(integer(v), unit) }
	}
	switch t := logical.(type) {
	case *format.StringType, *format.EnumType, *format.JsonType:
		if physical == format.ByteArray {
			return name, Text, func(v parquet.Value) (any, error) { return string(v.ByteArray()), nil }
		}
		return name, Any, nil
	case *format.DecimalType:
		switch {
		case t.Scale < -1000 || t.Scale > 1000 || !whole && !array:
			return name, Any, nil
		case whole:
			return name, Float, func(v parquet.Value) (any, error) { return decimal(big.NewInt(integer(v)), t.Scale) }
		}
		return name, Float, func(v parquet.Value) (any, error) { return decimal(signed(v.ByteArray()), t.Scale) }
	case *format.DateType:
		return time(perDay)
	case *format.TimeType:
		return time(leafUnit(t.Unit))
	case *format.TimestampType:
		return time(leafUnit(t.Unit))
	case *format.IntType:
		switch {
		case !whole:
			return name, Any, nil
		case !t.IsSigned && t.BitWidth == 64:
			return name, Int, func(v parquet.Value) (any, error) { return unsigned(uint64(v.Int64())) }
		case !t.IsSigned && physical == format.Int32:
			return name, Int, func(v parquet.Value) (any, error) { return int64(uint32(v.Int32())), nil }
		}
	case *format.Float16Type:
		if physical != format.FixedLenByteArray || e.TypeLength.V != 2 {
			return name, Any, nil
		}
		return name, Float, func(v parquet.Value) (any, error) { return half(binary.LittleEndian.Uint16(v.ByteArray())), nil }
	case *format.NullType:
		return name, Empty, func(parquet.Value) (any, error) { return nil, errors.New("a value in a column of nulls") }
	case nil, *format.UUIDType, *format.BsonType, *format.GeometryType, *format.GeographyType: // bytes
	default:
		return name, Any, nil
	}
	switch physical {
	case format.Boolean:
		return name, Bool, func(v parquet.Value) (any, error) { return v.Boolean(), nil }
	case format.Int32, format.Int64:
		return name, Int, func(v parquet.Value) (any, error) { return integer(v), nil }
	case format.Float:
		return name, Float, func(v parquet.Value) (any, error) { return float64(v.Float()), nil }
	case format.Double:
		return name, Float, func(v parquet.Value) (any, error) { return v.Double(), nil }
	case format.ByteArray, format.FixedLenByteArray:
		return name, Any, func(v parquet.Value) (any, error) { return bytes.Clone(v.ByteArray()), nil }
	case format.Int96: // a time: nanoseconds of a day, and the day
		return name, Int, func(v parquet.Value) (any, error) {
			t := v.Int96()
			nanos := int64(t[1])<<32 | int64(t[0])
			if nanos < 0 || nanos%1000 != 0 {
				return nil, fmt.Errorf("the time %d ns is not a whole number of microseconds", nanos)
			}
			return (int64(int32(t[2]))-julianEpoch)*perDay + nanos/1000, nil
		}
	}
	return name, Any, nil
}

func leafUnit(u format.TimeUnit) int64 {
	switch u.Value.(type) {
	case *format.MilliSeconds:
		return perMilli
	case *format.MicroSeconds:
		return perMicro
	case *format.NanoSeconds:
		return perNano
	}
	return 0
}

// signed decodes a big-endian two's complement integer.
func signed(b []byte) *big.Int {
	n := new(big.Int).SetBytes(b)
	if len(b) > 0 && b[0]&0x80 != 0 {
		n.Sub(n, new(big.Int).Lsh(big.NewInt(1), uint(8*len(b))))
	}
	return n
}
