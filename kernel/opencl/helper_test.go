package opencl

import (
	"math"
	"math/rand/v2"
	"os"
	"testing"
	"unsafe"

	"drun/internal/try"
	"drun/kernel/dtype"
)

// The tests compare with package kernel on whatever device there is first: in drun's own tests PoCL.
var device *Device

func TestMain(m *testing.M) {
	if found, err := List(); err == nil && len(found) > 0 {
		device, _ = Open(found[0])
	}
	os.Exit(m.Run())
}

func open(t *testing.T) *Device {
	t.Helper()
	if device == nil {
		t.Skip("no OpenCL device: " + install)
	}
	return device
}

// memory is the same bytes on both sides.
type memory struct {
	host []byte
	at   Buffer
}

func (m *memory) ptr() unsafe.Pointer { return unsafe.Pointer(&m.host[0]) }
func (m *memory) place() Place        { return Place{m.at, 0} }

func upload(d *Device, host []byte) *memory {
	m := &memory{host, d.Get("test", max(len(host), 1))}
	if len(host) > 0 {
		d.Write(m.at, 0, m.ptr(), len(host))
	} else {
		m.host = make([]byte, 8)[:1]
	}
	return m
}

// random fills memory with numbers of a type: among them, unless they are tame, zeros, infinities, NaNs and denormals.
func random(rng *rand.Rand, dt dtype.Type, n int, tame bool) []byte {
	b := make([]byte, n*dt.Size())
	for i := range n {
		p := unsafe.Pointer(&b[i*dt.Size()])
		f := rng.NormFloat64()
		if !tame {
			switch rng.IntN(12) {
			case 0:
				f = []float64{0, math.Copysign(0, -1), math.Inf(1), math.Inf(-1), math.NaN(), 1, -1, 2, 0.5, 1e-40, -3e-310}[rng.IntN(11)]
			case 1:
				f *= math.Pow(2, float64(rng.IntN(280)-140))
			case 2:
				f = math.Round(f * 4)
			}
		}
		switch dt {
		case dtype.Float32:
			*(*float32)(p) = float32(f)
		case dtype.Float64:
			*(*float64)(p) = f
		case dtype.Bool:
			*(*byte)(p) = byte(rng.IntN(2))
		default:
			bits := rng.Uint64()
			if rng.IntN(2) == 0 {
				bits = uint64(int64(rng.IntN(9) - 4))
			}
			for j := range dt.Size() {
				b[i*dt.Size()+j] = byte(bits >> (8 * j))
			}
		}
	}
	return b
}

// same compares what both sides have.
func same(t *testing.T, d *Device, dt dtype.Type, m *memory, format string, args ...any) {
	t.Helper()
	got := make([]byte, len(m.host))
	d.Read(unsafe.Pointer(&got[0]), m.at, 0, len(got))
	size := dt.Size()
	for i := 0; i+size <= len(got); i += size {
		if string(got[i:i+size]) != string(m.host[i:i+size]) {
			t.Errorf(format+": element %d is %x, not %x", append(args, i/size, got[i:i+size], m.host[i:i+size])...)
			return
		}
	}
}

// attempt runs what may fail as package try fails.
func attempt(t *testing.T, f func()) {
	t.Helper()
	err := func() (err error) {
		defer try.Caught(&err)
		f()
		return nil
	}()
	if err != nil {
		t.Error(err)
	}
}
