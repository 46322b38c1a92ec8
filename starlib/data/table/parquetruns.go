package table

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"math/bits"

	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/format"
)

// runs looks at what a page has in runs of values, or with their number in front, before the library decodes it: the
// library makes as many values as the data says, not as the page's header says.
type runs struct {
	count int64
	there int64 // the values that are not null, for which the library reserves memory
	takes int   // the bytes of the values, where their lengths say so
}

// plainDictionary is what the first version of Parquet calls RLEDictionary.
const plainDictionary = format.PlainDictionary //nolint:staticcheck // nobody should write it, but there are such files

// padding is how many values more than the page has there may be: writers fill the last group up.
const padding = 1 << 12

func (r *runs) fits(n uint64, what string) error {
	if n > uint64(r.count)+padding {
		return fmt.Errorf("a page of %d values says that it has %d %s", r.count, n, what)
	}
	return nil
}

// claims: a page's data says how many values it has, or its header how many bytes they have.
func (l *leaf) claims(encoding int64) bool {
	switch format.Encoding(encoding) {
	case format.Plain:
		return false
	case plainDictionary, format.RLEDictionary, format.RLE, format.DeltaBinaryPacked, format.DeltaLengthByteArray, format.DeltaByteArray:
		return true
	}
	return l.kind == format.FixedLenByteArray
}

// levels looks at levels up to a highest one, of so many bytes; -1: the bytes are in front of them. see, unless it is nil, is
// given the levels.
func (r *runs) levels(in *bufio.Reader, size, encoding int64, highest int, what string, see func(level uint32, times int64)) error {
	if size < 0 {
		if highest == 0 {
			return nil
		}
		size = length(in)
	}
	part := io.LimitReader(in, size)
	if width := bits.Len(uint(highest)); highest == 0 {
	} else if format.Encoding(encoding) == format.RLE {
		if err := r.hybrid(bufio.NewReader(part), width, what, see); err != nil {
			return err
		}
	} else if err := r.fits(8*uint64(size)/uint64(width), what); err != nil {
		return err
	}
	_, _ = io.Copy(io.Discard, part) // an error is the library's, too
	return nil
}

// length is a length of four bytes; 0 if they are not there.
func length(in io.Reader) int64 {
	var b [4]byte
	if _, err := io.ReadFull(in, b[:]); err != nil {
		return 0
	}
	return int64(binary.LittleEndian.Uint32(b[:]))
}

// nulls takes the levels below the highest one from the values that are there.
func (r *runs) nulls(highest int) func(level uint32, times int64) {
	left := r.count
	return func(level uint32, times int64) {
		if times = min(times, left); level != uint32(highest) {
			r.there -= times
		}
		left -= times
	}
}

// values looks at the values of a leaf, which are the rest.
func (r *runs) values(in *bufio.Reader, encoding int64, l *leaf) error {
	switch e := format.Encoding(encoding); e {
	case plainDictionary, format.RLEDictionary:
		width, err := in.ReadByte()
		if err != nil {
			return nil //nolint:nilerr // all are null
		}
		return r.hybrid(in, int(width), "indices into its dictionary", nil)
	case format.RLE:
		if l.kind != format.Boolean { // only the library knows it
			return r.hybrid(in, 0, "integers", nil)
		}
		return r.hybrid(bufio.NewReader(io.LimitReader(in, length(in))), 1, "booleans", nil)
	case format.DeltaBinaryPacked:
		_, err := r.deltas(in, "integers")
		return err
	case format.DeltaLengthByteArray, format.DeltaByteArray:
		content, err := io.ReadAll(in)
		if err != nil {
			return err
		}
		packed := bytes.NewReader(content)
		lengths := bufio.NewReader(packed)
		more, err := r.deltas(lengths, "lengths")
		unread := packed.Len() + lengths.Buffered()
		if err == nil && more && e == format.DeltaByteArray {
			_, err = r.deltas(lengths, "lengths")
		}
		if err != nil || l.kind != format.ByteArray && l.kind != format.FixedLenByteArray {
			return err
		}
		err = guarded(func() error {
			r.takes = parquet.LookupEncoding(e).EstimateDecodeByteArraySize(content)
			return nil
		})
		// A value has at most all the bytes that there are.
		if most := min(maxPage, r.count*int64(len(content))); err == nil && int64(r.takes) > most {
			return fmt.Errorf("a page's values have %d bytes, and may have %d", r.takes, most)
		}
		if err != nil || l.kind != format.FixedLenByteArray {
			return err
		}
		if err = r.fixed(int64(r.takes), l); err == nil && e == format.DeltaByteArray {
			err = r.each(content, len(content)-unread, l)
		}
		return err
	default:
		if l.kind != format.FixedLenByteArray {
			return nil
		}
		size, err := io.Copy(io.Discard, in)
		if err != nil {
			return nil //nolint:nilerr // the library's, too
		}
		return r.fixed(size, l)
	}
}

// fixed is an error if values of one length have other bytes than those that the page has for them.
func (r *runs) fixed(size int64, l *leaf) error {
	if l.length <= 0 || r.there < 0 || r.there*l.length != size { // the library would give other memory for the rest
		return fmt.Errorf("a page says that it has %d values of %d bytes, and has %d bytes", r.there, l.length, size)
	}
	r.takes = int(size)
	return nil
}

// each is an error if a value of one length is put together from parts of another: the library asks only what all of them
// have together. content has how much of the value before each takes over and, from suffixes on, how much follows.
func (r *runs) each(content []byte, suffixes int, l *leaf) error {
	if r.there == 0 {
		return nil
	}
	return guarded(func() error {
		before, err := parquet.DeltaBinaryPacked.DecodeInt32(nil, content[:suffixes])
		if err != nil {
			return err
		}
		after, err := parquet.DeltaBinaryPacked.DecodeInt32(nil, content[suffixes:])
		if err != nil {
			return err
		}
		if int64(len(before)) != r.there || int64(len(after)) != r.there {
			return fmt.Errorf("a page of %d values has the lengths of %d and %d", r.there, len(before), len(after))
		}
		for i := range before {
			if n := int64(before[i]) + int64(after[i]); n != l.length || before[i] < 0 || after[i] < 0 {
				return fmt.Errorf("a page's value %d has %d bytes and %d, and must have %d", i, before[i], after[i], l.length)
			}
		}
		return nil
	})
}

// hybrid looks at runs of equal values and groups of eight packed ones, up to the end of the data. Where that is garbled,
// it is the library that says so. see, unless it is nil, is given the values.
// https://parquet.apache.org/docs/file-format/data-pages/encodings/#RLE
func (r *runs) hybrid(in *bufio.Reader, width int, what string, see func(value uint32, times int64)) error {
	if width > 32 {
		return nil
	}
	for total := uint64(0); ; {
		head, err := binary.ReadUvarint(in)
		if err != nil {
			return nil //nolint:nilerr // the end
		}
		n, size := head>>1, (width+7)/8
		if err := r.fits(n, what); err != nil {
			return err
		}
		if head&1 != 0 {
			size = int(n) * width
			n *= 8
		} else if n == 0 {
			size = 0 // zeros at the end
		}
		total += n
		if err := r.fits(total, what); err != nil {
			return err
		}
		if see == nil {
			if _, err := in.Discard(size); err != nil {
				return nil //nolint:nilerr // the end
			}
			continue
		}
		packed := make([]byte, size)
		if _, err := io.ReadFull(in, packed); err != nil {
			return nil //nolint:nilerr // the end
		}
		if head&1 == 0 {
			value := uint32(0)
			for i, b := range packed {
				value |= uint32(b) << (8 * i)
			}
			see(value, int64(n))
			continue
		}
		for i := range int(n) {
			value := uint32(0)
			for bit := range width {
				at := i*width + bit
				value |= uint32(packed[at/8]>>(at%8)&1) << bit
			}
			see(value, 1)
		}
	}
}

// deltas looks at blocks of differences; whether there may be something after them.
// https://parquet.apache.org/docs/file-format/data-pages/encodings/#DELTAENC
func (r *runs) deltas(in *bufio.Reader, what string) (more bool, err error) {
	var head [4]uint64 // the values of a block, its parts, all values, the first one
	for i := range head {
		if head[i], err = binary.ReadUvarint(in); err != nil {
			return false, nil //nolint:nilerr // the end
		}
	}
	block, parts, left := head[0], head[1], head[2]
	if err := r.fits(left, what); err != nil {
		return false, err
	}
	if parts == 0 || block > 1<<16 || block < parts {
		return false, nil
	}
	widths := make([]byte, parts)
	for left -= min(left, 1); left > 0; {
		if _, err := binary.ReadUvarint(in); err != nil {
			return false, nil //nolint:nilerr // the end
		}
		if _, err := io.ReadFull(in, widths); err != nil {
			return false, nil //nolint:nilerr // the end
		}
		for _, width := range widths {
			if left == 0 {
				break
			}
			if _, err := in.Discard(int(block / parts * uint64(width) / 8)); err != nil {
				return false, nil //nolint:nilerr // the end
			}
			left -= min(left, block/parts)
		}
	}
	return true, nil
}
