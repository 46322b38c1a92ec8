package engine_test

import (
	"math/rand/v2"
	"net"
	"os"
	"reflect"
	"testing"
	"time"

	"drun/engine"
	"drun/engine/cluster"

	"golang.org/x/sys/unix"
)

// fill sets everything in a value at random; text is any bytes.
func fill(rng *rand.Rand, v reflect.Value, depth int) {
	switch v.Kind() {
	case reflect.String:
		v.SetString(string(noise(rng)))
	case reflect.Slice:
		if v.Type().Elem().Kind() == reflect.Uint8 {
			v.SetBytes(noise(rng))
			return
		}
		v.Set(reflect.MakeSlice(v.Type(), 1+rng.IntN(3), 4))
		for i := range v.Len() {
			fill(rng, v.Index(i), depth)
		}
	case reflect.Array:
		for i := range v.Len() {
			fill(rng, v.Index(i), depth)
		}
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		for range 1 + rng.IntN(3) {
			key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
			fill(rng, key, depth)
			fill(rng, value, depth)
			v.SetMapIndex(key, value)
		}
	case reflect.Pointer:
		if depth > 0 && rng.IntN(4) > 0 {
			v.Set(reflect.New(v.Type().Elem()))
			fill(rng, v.Elem(), depth-1)
		}
	case reflect.Struct:
		if at, ok := v.Addr().Interface().(*time.Time); ok {
			*at = time.Unix(rng.Int64N(1<<32), rng.Int64N(1e9)).UTC()
			return
		}
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				fill(rng, v.Field(i), depth)
			}
		}
	case reflect.Bool:
		v.SetBool(rng.IntN(2) == 0)
	case reflect.Float32, reflect.Float64:
		v.SetFloat(rng.NormFloat64())
	case reflect.Int8:
		v.SetInt(int64(int8(rng.Uint64())))
	case reflect.Int32:
		v.SetInt(int64(int32(rng.Uint64())))
	case reflect.Int, reflect.Int64:
		v.SetInt(int64(rng.Uint64()))
	case reflect.Uint8:
		v.SetUint(uint64(uint8(rng.Uint64())))
	case reflect.Uint32:
		v.SetUint(uint64(uint32(rng.Uint64())))
	case reflect.Uint, reflect.Uint64:
		v.SetUint(rng.Uint64())
	default:
		panic("a message holds a " + v.Kind().String())
	}
}

func noise(rng *rand.Rand) []byte {
	b := make([]byte, 1+rng.IntN(9))
	for i := range b {
		b[i] = byte(rng.Uint32())
	}
	return b
}

// roundTrips sends values of T through a channel of its own kind.
func roundTrips[T any](t *testing.T, send func(any), receive func(any) error) {
	t.Helper()
	for seed := range uint64(300) {
		sent, got := new(T), new(T)
		fill(rand.New(rand.NewPCG(seed, 0)), reflect.ValueOf(sent).Elem(), 4)
		go send(sent)
		if err := receive(got); err != nil {
			t.Fatalf("seed %d: %T: %v", seed, *sent, err)
		}
		if !reflect.DeepEqual(sent, got) {
			t.Fatalf("seed %d: sent %+v, got %+v", seed, sent, got)
		}
	}
}

// Whatever bytes the texts of a recipe hold, all messages arrive as they were sent.
func TestMessagesOfAnyBytes(t *testing.T) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	var ends [2]*engine.Channel
	for i, fd := range fds {
		if ends[i], err = engine.NewChannel(os.NewFile(uintptr(fd), "control")); err != nil {
			t.Fatal(err)
		}
		defer ends[i].Close()
	}
	send := func(msg any) {
		if err := ends[0].Send(msg); err != nil {
			t.Error(err)
		}
	}
	roundTrips[engine.ToWorker](t, send, ends[1].Receive)
	roundTrips[engine.ToAgent](t, send, ends[1].Receive)

	overLink[cluster.Hello](t)
	overLink[cluster.ToNode](t)
	overLink[cluster.ToCoordinator](t)
}

// overLink sends messages of that type from one node to another.
func overLink[M any](t *testing.T) {
	a, b := net.Pipe()
	from, to := cluster.NewConn[M, M](a, cluster.Steady), cluster.NewConn[M, M](b, cluster.Steady)
	defer to.Close()
	defer from.Close()
	to.Trust()
	roundTrips[M](t, func(msg any) { from.Send(msg.(*M)) }, func(msg any) error {
		received, err := to.Receive()
		if err == nil {
			*msg.(*M) = *received
		}
		return err
	})
}
