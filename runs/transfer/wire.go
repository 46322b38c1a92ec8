package transfer

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"reflect"
	"runtime/debug"
	"slices"
	"strconv"
	"time"

	"github.com/fxamacker/cbor/v2"
	"golang.org/x/sync/semaphore"

	"drun/checkpoints"
	"drun/history"
	"drun/internal/exit"
	"drun/internal/try"
)

// A request is POST PATH/NAME. Its body and the answer are CBOR, and both carry the SHA-256 of their bytes (RFC 9530), which is
// compared before anything is done with them. An error is JSON.

// Path is where a server answers these requests.
const Path = "/api/transfer/v1/"

const (
	answerWithin = 5 * time.Minute // a request, with its answer
	mostInMemory = 128 << 20       // bytes of all requests that are not small and are being answered; others wait
	small        = 1 << 20
	mostAnswered = 8 << 20 // bytes of contents and chunks in one request or answer; one goes in any case
	// MostBytes limits a request: the largest artifact, and as much again.
	MostBytes = 40 << 20
)

var (
	encoder = must(cbor.EncOptions{NaNConvert: cbor.NaNConvertNone, InfConvert: cbor.InfConvertNone, Time: cbor.TimeRFC3339NanoUTC}.EncMode())
	decoder = must(cbor.DecOptions{MaxArrayElements: 1 << 20, MaxMapPairs: 1 << 20, UTF8: cbor.UTF8DecodeInvalid}.DecMode())
)

func must[T any](v T, err error) T {
	if err != nil {
		panic(err) // a mistake in the options
	}
	return v
}

// Handler answers the requests for a home. Whoever mounts it has found out who makes them (see access.With).
func Handler(home *Home) http.Handler {
	memory := semaphore.NewWeighted(mostInMemory)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(answerWithin))
		answer, err := func() (_ []byte, err error) {
			defer func() {
				if p := recover(); p != nil {
					var failed bool
					if err, failed = try.Failure(p); !failed {
						err = fmt.Errorf("a bug in drun: %v\n%s", p, debug.Stack())
					}
				}
			}()
			name := r.PathValue("method")
			request, known := requests[name]
			if !known {
				return nil, &history.NotFound{What: fmt.Sprintf("there is no request %.40q", name), Near: "it belongs to another version of drun"}
			}
			size := r.ContentLength
			if size < 0 || size > MostBytes {
				size = MostBytes
			}
			if slices.Contains([]string{"chunks", "contents", "read-file"}, name) {
				size += mostAnswered
			}
			if size > small { // points do not wait for weights
				try.Ok(memory.Acquire(r.Context(), size))
				defer memory.Release(size)
			}
			body := try.To(io.ReadAll(http.MaxBytesReader(w, r.Body, MostBytes)))
			if r.Header.Get(digestHeader) != DigestOf(body) {
				return nil, &garbled{"request"}
			}
			return encoder.Marshal(try.To(request.do(r.Context(), home, try.To(request.read(body)))))
		}()
		if err != nil {
			Fail(w, err)
			return
		}
		w.Header().Set("Content-Type", "application/cbor")
		w.Header().Set(digestHeader, DigestOf(answer))
		w.Header().Set("Content-Length", strconv.Itoa(len(answer)))
		_, _ = w.Write(answer)
	})
}

const digestHeader = "Content-Digest"

// DigestOf is the value of the header Content-Digest.
func DigestOf(body []byte) string {
	sum := sha256.Sum256(body)
	return "sha-256=:" + base64.StdEncoding.EncodeToString(sum[:]) + ":"
}

// garbled is the error of a request or an answer that was cut short or changed on its way: it is sent again.
type garbled struct{ What string }

func (e *garbled) Error() string {
	return "the " + e.What + " does not have the digest that it names: it was cut short or changed on the way"
}

func (*garbled) ExitCode() exit.Code { return exit.Usage }

// travellers are the kinds of errors that are the same on the other side, with the status of their answers.
var travellers = []struct {
	kind   string
	status int
	of     reflect.Type
}{
	{"moved", 409, reflect.TypeFor[history.Moved]()}, {"diverged", 409, reflect.TypeFor[history.Diverged]()}, {"lacking", 409, reflect.TypeFor[Lacking]()},
	{"gone", 410, reflect.TypeFor[history.Gone]()}, {"missing", 404, reflect.TypeFor[history.NotFound]()}, {"garbled", 400, reflect.TypeFor[garbled]()},
}

// fault is an error as it travels.
type fault struct {
	Error  string          `json:"error"`
	Hint   string          `json:"hint,omitempty"`
	Kind   string          `json:"kind,omitempty"`
	Code   exit.Code       `json:"code,omitempty"`
	Detail json.RawMessage `json:"detail,omitempty"` // the error itself, of a kind
}

// Fail answers a request with an error.
func Fail(w http.ResponseWriter, err error) {
	if errors.As(err, new(*checkpoints.ErrNone)) || errors.As(err, new(*history.ErrNone)) {
		err = &history.NotFound{What: err.Error(), Near: exit.HintOf(err)}
	}
	f := fault{Error: err.Error(), Hint: exit.HintOf(err), Code: exit.CodeOf(err)}
	status := http.StatusInternalServerError
	var own interface{ HTTPStatus() int }
	switch {
	case errors.As(err, &own):
		status = own.HTTPStatus()
	case errors.As(err, new(*http.MaxBytesError)):
		status = http.StatusRequestEntityTooLarge
	case f.Code == exit.Usage, errors.As(err, new(*history.Misshapen)), errors.As(err, new(*history.NameError)):
		status = http.StatusBadRequest
	case f.Code == exit.Storage:
		status = http.StatusInsufficientStorage
	}
	for _, t := range travellers {
		if e := reflect.New(reflect.PointerTo(t.of)); errors.As(err, e.Interface()) {
			f.Kind, status = t.kind, t.status
			f.Detail, _ = json.Marshal(e.Elem().Interface())
		}
	}
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(f)
}

// Refused is an answer that is an error.
type Refused struct {
	Status   int
	What, Do string
	Code     exit.Code
	after    time.Duration // to wait before the same is tried again
}

func (e *Refused) Error() string       { return e.What }
func (e *Refused) Hint() string        { return e.Do }
func (e *Refused) ExitCode() exit.Code { return e.Code }
func (e *Refused) HTTPStatus() int     { return e.Status }

// temporary reports whether the same may be tried again.
func (e *Refused) temporary() bool {
	return slices.Contains([]int{http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout}, e.Status)
}

// Remote is a side that is reached by HTTP.
type Remote struct {
	client *http.Client
	url    string // ends in Path
	where  string // for messages
	token  string
	// Within limits one try of a request and Patience how long it is tried again while the other side does not answer, which Say
	// is told of.
	Within, Patience time.Duration
	Say              func(text string)
	answered         func() // is called for each answer; nil: nothing is
	shut             func() error
}

// NewRemote is the side at a server's address.
func NewRemote(client *http.Client, address, token string) *Remote {
	return &Remote{client: client, url: address + Path, where: address, token: token, Within: time.Minute, Patience: 30 * time.Second, Say: func(string) {}}
}

func (r *Remote) Close() error {
	r.client.CloseIdleConnections()
	if r.shut != nil {
		return r.shut()
	}
	return nil
}

// untold is for how long nothing is said of a side that does not answer.
const untold = time.Second

// Ask sends a request until it is answered.
func (r *Remote) Ask(ctx context.Context, name string, in, out any) error {
	body, err := encoder.Marshal(in)
	if err != nil {
		return err
	}
	began, told := time.Now(), false
	for wait := 100 * time.Millisecond; ; wait = min(2*wait, 5*time.Second) {
		answer, err := r.once(ctx, name, body)
		if err == nil {
			return decoder.Unmarshal(answer, out)
		}
		refused := (*Refused)(nil)
		if errors.As(err, &refused) {
			wait = max(wait, refused.after)
		}
		again := !errors.As(err, new(exit.Coded)) || errors.As(err, new(*garbled)) || refused != nil && refused.temporary()
		switch end := began.Add(r.Patience); {
		case !again || ctx.Err() != nil:
			return err
		case time.Now().Add(wait).After(end) && refused == nil:
			return exit.WithHint(exit.Errorf(exit.Requirement, "%s does not answer: %w", r.where, err), "is the address right, and the server on?")
		case time.Now().Add(wait).After(end):
			return err
		case !told && time.Since(began)+wait > untold:
			told = true
			r.Say(fmt.Sprintf("no answer at %s, asking again until %s", r.where, end.Format(time.TimeOnly)))
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// mostRead limits an answer.
const mostRead = 2 * MostBytes

// once sends a request. An error without an exit code says that there was no answer, or not a whole one.
func (r *Remote) once(ctx context.Context, name string, body []byte) (_ []byte, err error) {
	defer try.Caught(&err)
	ctx, cancel := context.WithTimeout(ctx, r.Within)
	defer cancel()
	request := try.To(http.NewRequestWithContext(ctx, http.MethodPost, r.url+name, bytes.NewReader(body)))
	request.Header.Set("Content-Type", "application/cbor")
	request.Header.Set(digestHeader, DigestOf(body))
	if r.token != "" {
		request.Header.Set("Authorization", "Bearer "+r.token)
	}
	response, err := r.client.Do(request)
	if at := (*url.Error)(nil); errors.As(err, &at) {
		err = at.Err // without the address, which says nothing over ssh
	}
	try.Ok(err)
	defer response.Body.Close()
	answer := try.To(io.ReadAll(io.LimitReader(response.Body, mostRead)))
	if r.answered != nil {
		r.answered()
	}
	if response.StatusCode != http.StatusOK {
		return nil, r.refusal(response, answer)
	}
	if response.Header.Get(digestHeader) != DigestOf(answer) {
		return nil, &garbled{"answer"}
	}
	return answer, nil
}

// refusal is the error that an answer says.
func (r *Remote) refusal(response *http.Response, answer []byte) error {
	var f fault
	if json.Unmarshal(answer, &f) != nil || f.Error == "" {
		f = fault{Error: fmt.Sprintf("%s answers %s", r.where, response.Status), Code: exit.Requirement}
		if response.StatusCode == http.StatusNotFound || response.StatusCode == http.StatusMethodNotAllowed {
			f.Hint = "is this the address of drun serve?"
		}
	}
	for _, t := range travellers {
		if e := reflect.New(t.of); t.kind == f.Kind {
			return cmp.Or(json.Unmarshal(f.Detail, e.Interface()), e.Interface().(error))
		}
	}
	seconds, _ := strconv.Atoi(response.Header.Get("Retry-After"))
	return &Refused{Status: response.StatusCode, What: f.Error, Do: f.Hint, Code: max(f.Code, exit.Recipe), after: time.Duration(min(seconds, 60)) * time.Second}
}
