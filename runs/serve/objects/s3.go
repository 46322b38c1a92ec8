package objects

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"

	"drun/internal/exit"
	"drun/internal/try"
)

// Bucket keeps files in a bucket of S3, or of a server that speaks its protocol.
type Bucket struct {
	client       *minio.Client
	name, prefix string
	endpoint     string
}

// attempts are how often a request is made, with pauses that grow to a second. Tests make fewer.
var attempts = 6

const (
	partSize = 16 << 20         // bytes of a file in memory at a time
	patience = 10 * time.Second // for a connection and for the beginning of an answer
)

// OpenBucket opens s3://BUCKET/PREFIX, with the environment and the files of credentials that AWS's tools take: AWS_ACCESS_KEY_ID,
// AWS_PROFILE, AWS_REGION, AWS_ENDPOINT_URL_S3 and their like, or the role of the machine. It makes sure that the bucket is there.
func OpenBucket(ctx context.Context, address string) (_ *Bucket, err error) {
	defer try.Caught(&err)
	u, err := url.Parse(address)
	if err != nil || u.Scheme != "s3" || u.Host == "" || u.RawQuery != "" || u.User != nil {
		return nil, exit.WithHint(exit.Errorf(exit.Usage, "%q is no address of a bucket", address), "want s3://BUCKET or s3://BUCKET/PREFIX")
	}
	b := &Bucket{name: u.Host, prefix: strings.Trim(u.Path, "/"), endpoint: cmp.Or(os.Getenv("AWS_ENDPOINT_URL_S3"), os.Getenv("AWS_ENDPOINT_URL"), "https://s3.amazonaws.com")}
	if b.prefix != "" {
		try.Ok(CheckName(b.prefix))
	}
	at, err := url.Parse(b.endpoint)
	if err != nil || at.Host == "" || at.Scheme != "http" && at.Scheme != "https" {
		return nil, exit.WithHint(exit.Errorf(exit.Usage, "AWS_ENDPOINT_URL is %q", b.endpoint), "want https://HOST or http://HOST:PORT")
	}
	transport := try.To(minio.DefaultTransport(at.Scheme == "https"))
	transport.ResponseHeaderTimeout = patience
	b.client = try.To(minio.New(at.Host, &minio.Options{
		Creds: credentials.NewChainCredentials([]credentials.Provider{&credentials.EnvAWS{}, &credentials.FileAWSCredentials{},
			&credentials.IAM{Client: &http.Client{Transport: transport, Timeout: patience}}}),
		Secure: at.Scheme == "https", Region: cmp.Or(os.Getenv("AWS_REGION"), os.Getenv("AWS_DEFAULT_REGION")), Transport: transport, MaxRetries: attempts,
	}))
	there, err := b.client.BucketExists(ctx, b.name)
	try.Ok(b.wrap(err))
	if !there {
		return nil, exit.WithHint(exit.Errorf(exit.Usage, "there is no bucket %s at %s", b.name, b.endpoint), "make it first (aws s3 mb), or correct --artifacts; AWS_ENDPOINT_URL_S3 names another server than AWS's")
	}
	return b, nil
}

// In is a folder of the bucket, as a store of its own.
func (b *Bucket) In(folder string) *Bucket {
	in := *b
	in.prefix = b.key(folder)
	return &in
}

func (b *Bucket) key(name string) string { return path.Join(b.prefix, name) }

// wrap makes what the client says an error that says what to do.
func (b *Bucket) wrap(err error) error {
	said := minio.ToErrorResponse(err)
	failed := &Unavailable{What: fmt.Sprintf("the bucket %s at %s", b.name, b.endpoint), Err: err}
	switch {
	case err == nil || exit.CodeOf(err) == exit.Usage || errors.Is(err, context.Canceled):
		return err
	case said.Code == minio.NoSuchKey || said.StatusCode == http.StatusNotFound && said.Code != minio.NoSuchBucket:
		return fs.ErrNotExist
	case said.Code == minio.NoSuchBucket:
		failed.Do = "the bucket was removed: make it again, or start with another --artifacts"
	case said.StatusCode == http.StatusForbidden || said.Code == minio.AccessDenied:
		failed.Do = "the credentials may not do that: the server needs s3:ListBucket, s3:GetObject, s3:PutObject and s3:DeleteObject; see AWS_ACCESS_KEY_ID, AWS_PROFILE, ~/.aws/credentials"
	case said.StatusCode >= 500 || said.StatusCode == http.StatusTooManyRequests:
		failed.Do = fmt.Sprintf("it was asked %d times; what was being written is not there: try again later", attempts)
	default:
		failed.Do = "is the server reachable from here? AWS_ENDPOINT_URL_S3 names another one than AWS's"
	}
	return failed
}

// Writable returns an error unless files can be written and removed.
func (b *Bucket) Writable(ctx context.Context) error {
	const name = "drun-write-test"
	if err := b.Put(ctx, name, strings.NewReader(""), 0); err != nil {
		return err
	}
	return b.Remove(ctx, name)
}

// Put reads at most a part of the content ahead; what a connection loses on the way is sent again.
func (b *Bucket) Put(ctx context.Context, name string, content io.Reader, size int64) (err error) {
	defer try.Caught(&err)
	try.Ok(CheckName(name))
	_, err = b.client.PutObject(ctx, b.name, b.key(name), content, size, minio.PutObjectOptions{PartSize: partSize, NumThreads: 1, ContentType: "application/octet-stream"})
	return b.wrap(err)
}

func (b *Bucket) Get(ctx context.Context, name string) (_ io.ReadSeekCloser, size int64, err error) {
	defer try.Caught(&err)
	try.Ok(CheckName(name))
	object, err := b.client.GetObject(ctx, b.name, b.key(name), minio.GetObjectOptions{})
	try.Ok(b.wrap(err))
	info, err := object.Stat()
	if err != nil {
		object.Close()
		return nil, 0, b.wrap(err)
	}
	return object, info.Size, nil
}

func (b *Bucket) List(ctx context.Context, folder string) (list []Info, err error) {
	defer try.Caught(&err)
	if folder != "" {
		try.Ok(CheckName(folder))
	}
	ctx, cancel := context.WithCancel(ctx) // which ends what lists
	defer cancel()
	prefix := strings.TrimPrefix(b.key(folder)+"/", "/")
	for object := range b.client.ListObjects(ctx, b.name, minio.ListObjectsOptions{Prefix: prefix}) {
		try.Ok(b.wrap(object.Err))
		below := strings.TrimPrefix(object.Key, prefix)
		if name := strings.TrimSuffix(below, "/"); name != "" {
			list = append(list, Info{name, name != below, object.Size, object.LastModified})
		}
	}
	slices.SortFunc(list, func(a, b Info) int { return strings.Compare(a.Name, b.Name) })
	return list, nil
}

func (b *Bucket) Remove(ctx context.Context, name string) (err error) {
	defer try.Caught(&err)
	try.Ok(CheckName(name))
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	try.Ok(b.wrap(b.client.RemoveObject(ctx, b.name, b.key(name), minio.RemoveObjectOptions{})))
	below := b.client.ListObjects(ctx, b.name, minio.ListObjectsOptions{Prefix: b.key(name) + "/", Recursive: true})
	for failed := range b.client.RemoveObjects(ctx, b.name, below, minio.RemoveObjectsOptions{}) {
		try.Ok(b.wrap(failed.Err))
	}
	return nil
}
