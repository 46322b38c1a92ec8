package transfer

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"runtime/debug"
	"strconv"
	"time"

	"github.com/fxamacker/cbor/v2"
	"golang.org/x/sync/semaphore"

	"drun/checkpoints"
	"drun/history"
	"drun/internal/exit"
	"drun/internal/try"
	"drun/runs/serve/access"
)

// A method of a [Side] is a request POST PATH/METHOD. Its body and the answer are CBOR, and both carry the SHA-256 of
// their bytes (RFC 9530), which is compared before anything is done with them. An error is JSON.

// Path is where a server answers these requests.
const Path = "/api/transfer/v1/"

// answerWithin limits how long a request may take, with its answer.
const answerWithin = 5 * time.Minute

// mostInMemory limits the bytes of all requests that are not small and are being answered; others wait.
const (
	mostInMemory = 128 << 20
	small        = 1 << 20
)

// MostBytes limits a request: the largest artifact, and as much again.
const MostBytes = 40 << 20

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

// The arguments of methods that have several.
type (
	sinceArgs struct {
		UID     string
		Have    history.Extent
		Secrets bool
	}
	sumsArgs struct {
		UID  string
		Sums []string
	}
	stepArgs struct {
		UID  string
		Step int64
	}
	chunksArgs struct {
		UID    string
		Chunks [][]byte
	}
)

// methods are the requests, each with a function that reads its arguments and calls the side.
var methods = map[string]func(ctx context.Context, s Side, body []byte) (any, error){
	"hello":  method(func(ctx context.Context, s Side, _ struct{}) (Hello, error) { return s.Hello(ctx) }),
	"find":   method(func(ctx context.Context, s Side, c Choice) ([]Found, error) { return s.Find(ctx, c) }),
	"states": method(func(ctx context.Context, s Side, uids []string) ([]history.State, error) { return s.States(ctx, uids) }),
	"extent": method(func(ctx context.Context, s Side, p Part) (Known, error) { return s.Extent(ctx, p) }),
	"since": method(func(ctx context.Context, s Side, a sinceArgs) (*history.Delta, error) {
		return s.Source(a.UID, a.Secrets).Since(ctx, a.Have)
	}),
	"contents": method(func(ctx context.Context, s Side, a sumsArgs) ([][]byte, error) { return s.Contents(ctx, a.UID, a.Sums) }),
	"lacking-contents": method(func(ctx context.Context, s Side, sums []string) ([]string, error) {
		return s.LackingContents(ctx, sums)
	}),
	"lacking-chunks": method(func(ctx context.Context, s Side, sums []string) ([]string, error) { return s.LackingChunks(ctx, sums) }),
	"merge":          method(func(ctx context.Context, s Side, a Arriving) (Merged, error) { return s.Merge(ctx, a) }),
	"checkpoints": method(func(ctx context.Context, s Side, uid string) ([]checkpoints.Manifest, error) {
		return s.Checkpoints(ctx, uid)
	}),
	"manifest": method(func(ctx context.Context, s Side, a stepArgs) (*checkpoints.Manifest, error) {
		return s.Manifest(ctx, a.UID, a.Step)
	}),
	"chunks": method(func(ctx context.Context, s Side, a sumsArgs) ([][]byte, error) { return s.Chunks(ctx, a.UID, a.Sums) }),
	"receive": method(func(ctx context.Context, s Side, a chunksArgs) (struct{}, error) {
		return struct{}{}, s.Receive(ctx, a.UID, a.Chunks)
	}),
	"enter": method(func(ctx context.Context, s Side, m *checkpoints.Manifest) (struct{}, error) {
		return struct{}{}, s.Enter(ctx, m)
	}),
}

func method[In, Out any](call func(context.Context, Side, In) (Out, error)) func(context.Context, Side, []byte) (any, error) {
	return func(ctx context.Context, s Side, body []byte) (any, error) {
		var in In
		if err := decoder.Unmarshal(body, &in); err != nil {
			return nil, exit.Errorf(exit.Usage, "the request cannot be read: %v", err)
		}
		return call(ctx, s, in)
	}
}

// Handler answers the requests for a side. Whoever mounts it has found out who makes them (see access.With).
func Handler(side Side) http.Handler {
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
			call := methods[r.PathValue("method")]
			if call == nil {
				return nil, &history.NotFound{What: fmt.Sprintf("there is no request %.40q", r.PathValue("method")), Near: "it belongs to another version of drun"}
			}
			size := r.ContentLength
			if size < 0 || size > MostBytes {
				size = MostBytes
			}
			if m := r.PathValue("method"); m == "chunks" || m == "contents" {
				size += mostAnswered
			}
			if size > small { // points do not wait for weights
				try.Ok(memory.Acquire(r.Context(), size))
				defer memory.Release(size)
			}
			body := try.To(io.ReadAll(http.MaxBytesReader(w, r.Body, MostBytes)))
			if given := r.Header.Get(digestHeader); given != DigestOf(body) {
				return nil, &garbled{}
			}
			return encoder.Marshal(try.To(call(r.Context(), side, body)))
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

// garbled is the error of a request that was cut short or changed on its way: it is sent again.
type garbled struct{}

func (*garbled) Error() string {
	return "the request does not have the digest that it names: it was cut short or changed on the way"
}

func (*garbled) ExitCode() exit.Code { return exit.Usage }

// fault is an error as it travels.
type fault struct {
	Error  string          `json:"error"`
	Hint   string          `json:"hint,omitempty"`
	Kind   string          `json:"kind,omitempty"`
	Code   exit.Code       `json:"code,omitempty"`
	Extent *history.Extent `json:"extent,omitempty"`
	Name   string          `json:"name,omitempty"`
	Step   int64           `json:"step,omitempty"`
}

// Fail answers a request with an error.
func Fail(w http.ResponseWriter, err error) {
	f := fault{Error: err.Error(), Hint: exit.HintOf(err), Code: exit.CodeOf(err)}
	status := http.StatusInternalServerError
	var moved *history.Moved
	var diverged *history.Diverged
	var lacking *Lacking
	var large *http.MaxBytesError
	var cut *garbled
	var own interface{ HTTPStatus() int }
	switch {
	case errors.As(err, &own):
		status = own.HTTPStatus()
	case errors.As(err, &cut):
		f.Kind, status = "garbled", http.StatusBadRequest
	case errors.As(err, &moved):
		f.Kind, f.Extent, status = "moved", &moved.Extent, http.StatusConflict
	case errors.As(err, &diverged):
		f.Kind, f.Name, f.Error, status = "diverged", diverged.Name, diverged.Why, http.StatusConflict
	case errors.As(err, &lacking):
		f.Kind, f.Step, status = "lacking", lacking.Step, http.StatusConflict
	case access.IsDenied(err):
		f.Kind, status = "denied", http.StatusForbidden
	case errors.As(err, new(*history.NotFound)), errors.As(err, new(*checkpoints.ErrNone)), errors.As(err, new(*history.ErrNone)):
		f.Kind, status = "missing", http.StatusNotFound
	case errors.As(err, &large):
		status = http.StatusRequestEntityTooLarge
	case exit.CodeOf(err) == exit.Usage, errors.As(err, new(*history.Misshapen)), errors.As(err, new(*history.NameError)):
		status = http.StatusBadRequest
	case exit.CodeOf(err) == exit.Storage:
		status = http.StatusInsufficientStorage
	}
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(f)
}

// Refused is an answer that is an error.
type Refused struct {
	Status    int
	What, Do  string
	Code      exit.Code
	after     time.Duration // to wait before the same is tried again
	temporary bool
}

func (e *Refused) Error() string       { return e.What }
func (e *Refused) Hint() string        { return e.Do }
func (e *Refused) ExitCode() exit.Code { return e.Code }

// Remote is a side that is reached by HTTP.
type Remote struct {
	client *http.Client
	url    string // ends in Path
	where  string // for messages
	token  string
	// Within limits one try of a request and Patience how long it is tried again while the other side does not answer.
	Within, Patience time.Duration
	answered         func() // is called for each answer; nil: nothing is
	shut             func() error
}

// NewRemote is the side at a server's address.
func NewRemote(client *http.Client, address, token string) *Remote {
	return &Remote{client: client, url: address + Path, where: address, token: token, Within: time.Minute, Patience: 30 * time.Second}
}

func (r *Remote) Close() error {
	r.client.CloseIdleConnections()
	if r.shut != nil {
		return r.shut()
	}
	return nil
}

// ask sends a request until it is answered.
func ask[Out any](ctx context.Context, r *Remote, name string, in any) (out Out, err error) {
	body, err := encoder.Marshal(in)
	if err != nil {
		return out, err
	}
	end := time.Now().Add(r.Patience)
	for wait := 100 * time.Millisecond; ; wait = min(2*wait, 5*time.Second) {
		answer, err := r.once(ctx, name, body)
		refused := (*Refused)(nil)
		again := err != nil && (!errors.As(err, new(exit.Coded)) || errors.As(err, &refused) && refused.temporary)
		if refused != nil {
			wait = max(wait, refused.after)
		}
		if !again || time.Now().Add(wait).After(end) || ctx.Err() != nil {
			if err == nil {
				err = decoder.Unmarshal(answer, &out)
			} else if again && refused == nil {
				err = exit.WithHint(exit.Errorf(exit.Requirement, "%s does not answer: %w", r.where, err), "is the address right, and the server on?")
			}
			return out, err
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return out, ctx.Err()
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
		return nil, errors.New("the answer does not have the digest that it names: it was cut short or changed on the way")
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
	switch {
	case f.Kind == "moved" && f.Extent != nil:
		return &history.Moved{Extent: *f.Extent}
	case f.Kind == "diverged":
		return &history.Diverged{Name: f.Name, Why: f.Error}
	case f.Kind == "lacking":
		return &Lacking{f.Step}
	case f.Kind == "missing":
		return &history.NotFound{What: f.Error, Near: f.Hint}
	}
	seconds, _ := strconv.Atoi(response.Header.Get("Retry-After"))
	return &Refused{Status: response.StatusCode, What: f.Error, Do: f.Hint, Code: max(f.Code, exit.Recipe), after: time.Duration(min(seconds, 60)) * time.Second,
		temporary: f.Kind == "garbled" || response.StatusCode == http.StatusTooManyRequests || response.StatusCode == http.StatusBadGateway ||
			response.StatusCode == http.StatusServiceUnavailable || response.StatusCode == http.StatusGatewayTimeout}
}

func (r *Remote) Hello(ctx context.Context) (Hello, error) {
	return ask[Hello](ctx, r, "hello", struct{}{})
}
func (r *Remote) Find(ctx context.Context, c Choice) ([]Found, error) {
	return ask[[]Found](ctx, r, "find", c)
}
func (r *Remote) States(ctx context.Context, uids []string) ([]history.State, error) {
	return ask[[]history.State](ctx, r, "states", uids)
}
func (r *Remote) Extent(ctx context.Context, p Part) (Known, error) {
	return ask[Known](ctx, r, "extent", p)
}
func (r *Remote) Contents(ctx context.Context, uid string, sums []string) ([][]byte, error) {
	return ask[[][]byte](ctx, r, "contents", sumsArgs{uid, sums})
}
func (r *Remote) LackingContents(ctx context.Context, sums []string) ([]string, error) {
	return ask[[]string](ctx, r, "lacking-contents", sums)
}
func (r *Remote) LackingChunks(ctx context.Context, sums []string) ([]string, error) {
	return ask[[]string](ctx, r, "lacking-chunks", sums)
}
func (r *Remote) Merge(ctx context.Context, a Arriving) (Merged, error) {
	return ask[Merged](ctx, r, "merge", a)
}
func (r *Remote) Checkpoints(ctx context.Context, uid string) ([]checkpoints.Manifest, error) {
	return ask[[]checkpoints.Manifest](ctx, r, "checkpoints", uid)
}
func (r *Remote) Manifest(ctx context.Context, uid string, step int64) (*checkpoints.Manifest, error) {
	return ask[*checkpoints.Manifest](ctx, r, "manifest", stepArgs{uid, step})
}
func (r *Remote) Chunks(ctx context.Context, uid string, sums []string) ([][]byte, error) {
	return ask[[][]byte](ctx, r, "chunks", sumsArgs{uid, sums})
}
func (r *Remote) Receive(ctx context.Context, uid string, chunks [][]byte) error {
	_, err := ask[struct{}](ctx, r, "receive", chunksArgs{uid, chunks})
	return err
}
func (r *Remote) Enter(ctx context.Context, m *checkpoints.Manifest) error {
	_, err := ask[struct{}](ctx, r, "enter", m)
	return err
}

type remoteSource struct {
	from    *Remote
	uid     string
	secrets bool
}

func (r *Remote) Source(uid string, secrets bool) Source { return &remoteSource{r, uid, secrets} }

func (s *remoteSource) Since(ctx context.Context, have history.Extent) (*history.Delta, error) {
	return ask[*history.Delta](ctx, s.from, "since", sinceArgs{s.uid, have, s.secrets})
}
