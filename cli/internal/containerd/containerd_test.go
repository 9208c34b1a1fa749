package containerd

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/iotest"

	imagesapi "github.com/containerd/containerd/api/services/images/v1"
	streamingapi "github.com/containerd/containerd/api/services/streaming/v1"
	transferapi "github.com/containerd/containerd/api/services/transfer/v1"
	transfertypes "github.com/containerd/containerd/api/types/transfer"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/emptypb"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fake is as much of containerd as the client uses. That it is like the real one, test/e2e's image tests show.
type fake struct {
	imagesapi.UnimplementedImagesServer
	streamingapi.UnimplementedStreamingServer
	transferapi.UnimplementedTransferServer

	mu      sync.Mutex
	labels  map[string]map[string]string // of the images, by name
	streams map[string]*openStream
	archive []byte
	store   *transfertypes.ImageStore
	// refuse is why nothing is imported; it is said after the first chunk.
	refuse error
}

type openStream struct {
	streamingapi.Streaming_StreamServer
	done chan struct{}
}

// start serves the fake on a socket.
func start(t *testing.T, f *fake) *Client {
	t.Helper()
	f.streams = map[string]*openStream{}
	path := filepath.Join(t.TempDir(), "containerd.sock")
	listener, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	imagesapi.RegisterImagesServer(server, f)
	streamingapi.RegisterStreamingServer(server, f)
	transferapi.RegisterTransferServer(server, f)
	var serving sync.WaitGroup
	serving.Go(func() { _ = server.Serve(listener) })
	client, err := Dial("unix://" + path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		client.Close()
		server.Stop()
		serving.Wait()
	})
	return client
}

// namespaced is an error if the call isn't for CRI's images.
func namespaced(ctx context.Context) error {
	md, _ := metadata.FromIncomingContext(ctx)
	if got := md.Get("containerd-namespace"); len(got) != 1 || got[0] != "k8s.io" {
		return status.Errorf(codes.FailedPrecondition, "the namespace is %q", got)
	}
	return nil
}

func (f *fake) Update(ctx context.Context, r *imagesapi.UpdateImageRequest) (*imagesapi.UpdateImageResponse, error) {
	if err := namespaced(ctx); err != nil {
		return nil, err
	}
	if r.GetImage().GetTarget() == nil {
		return nil, status.Error(codes.Unavailable, "the real one has ended with a panic")
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	labels := f.labels[r.GetImage().GetName()]
	if labels == nil {
		return nil, status.Error(codes.NotFound, "no such image")
	}
	// Without a mask all of the image would be replaced.
	for _, path := range r.GetUpdateMask().GetPaths() {
		key, ok := strings.CutPrefix(path, "labels.")
		if !ok {
			return nil, status.Error(codes.InvalidArgument, path)
		}
		if labels[key] = r.GetImage().GetLabels()[key]; labels[key] == "" {
			delete(labels, key)
		}
	}
	return &imagesapi.UpdateImageResponse{Image: r.GetImage()}, nil
}

// same decodes a message as containerd does, which compares the names of types as they are.
func same(a *anypb.Any, into proto.Message) error {
	if name := string(into.ProtoReflect().Descriptor().FullName()); a.GetTypeUrl() != name {
		return status.Errorf(codes.InvalidArgument, "a message of the type %q, want %q", a.GetTypeUrl(), name)
	}
	return proto.Unmarshal(a.GetValue(), into)
}

func (f *fake) Stream(s streamingapi.Streaming_StreamServer) error {
	first, err := s.Recv()
	if err != nil {
		return err
	}
	var init streamingapi.StreamInit
	if err := errors.Join(namespaced(s.Context()), same(first, &init)); err != nil {
		return err
	}
	open := &openStream{s, make(chan struct{})}
	f.mu.Lock()
	f.streams[init.GetID()] = open
	f.mu.Unlock()
	if err := s.Send(&anypb.Any{}); err != nil {
		return err
	}
	select {
	case <-open.done:
	case <-s.Context().Done():
	}
	return nil
}

func (f *fake) stream(id string) (*openStream, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if s := f.streams[id]; s != nil {
		return s, nil
	}
	return nil, status.Errorf(codes.NotFound, "stream %q", id)
}

func (f *fake) Transfer(ctx context.Context, r *transferapi.TransferRequest) (*emptypb.Empty, error) {
	var source transfertypes.ImageImportStream
	var store transfertypes.ImageStore
	err := errors.Join(namespaced(ctx), same(r.GetSource(), &source), same(r.GetDestination(), &store))
	if err != nil {
		return nil, err
	}
	progress, err := f.stream(r.GetOptions().GetProgressStream())
	if err != nil {
		return nil, err
	}
	defer close(progress.done)
	data, err := f.stream(source.GetStream())
	if err != nil {
		return nil, err
	}
	archive, err := f.receive(data)
	if err != nil {
		return nil, err
	}
	f.mu.Lock()
	f.archive, f.store = archive, &store
	f.mu.Unlock()
	for _, event := range []*transfertypes.Progress{
		{Event: "Importing"},
		{Event: "saved", Name: "docker.io/library/app:1"},
		{Event: "saved", Name: store.GetExtraReferences()[0].GetName() + ":2"},
		{Event: "Completed import"},
	} {
		message, err := packed(event)
		if err := errors.Join(err, progress.Send(message)); err != nil {
			return nil, err
		}
	}
	return &emptypb.Empty{}, nil
}

// receive takes a whole stream, with a window of two chunks, like containerd.
func (f *fake) receive(s *openStream) ([]byte, error) {
	defer close(s.done)
	var all []byte
	window := 0
	for {
		if window < 2*chunk {
			update, err := packed(&transfertypes.WindowUpdate{Update: 2 * chunk})
			if err := errors.Join(err, s.Send(update)); err != nil {
				return nil, err
			}
			window += 2 * chunk
		}
		message, err := s.Recv()
		if errors.Is(err, io.EOF) {
			return all, nil
		}
		var data transfertypes.Data
		if err = cmpOr(err, func() error { return same(message, &data) }); err != nil {
			return nil, err
		}
		if window -= len(data.GetData()); window < 0 {
			return nil, status.Error(codes.ResourceExhausted, "more than the window")
		}
		all = append(all, data.GetData()...)
		if f.refuse != nil {
			return nil, f.refuse
		}
	}
}

// cmpOr is err, or else what f returns.
func cmpOr(err error, f func() error) error {
	if err != nil {
		return err
	}
	return f()
}

func TestPin(t *testing.T) {
	f := &fake{labels: map[string]map[string]string{"app:1": {"other": "x"}, "sha256:1": {}, "web:1": {}}}
	client := start(t, f)
	names := []string{"app:1", "app@sha256:0", "sha256:1"}
	for _, on := range []bool{true, false} {
		if err := client.Pin(t.Context(), names, on); err != nil {
			t.Fatal(err)
		}
		want := map[string]map[string]string{"app:1": {"other": "x"}, "sha256:1": {}, "web:1": {}}
		if on {
			want["app:1"]["io.cri-containerd.pinned"], want["sha256:1"]["io.cri-containerd.pinned"] = "pinned", "pinned"
		}
		if !maps.EqualFunc(f.labels, want, maps.Equal[map[string]string, map[string]string]) {
			t.Errorf("pinned %v: labels %v, want %v", on, f.labels, want)
		}
	}
	err := client.Pin(t.Context(), []string{"gone:1"}, true)
	if err == nil || !strings.Contains(err.Error(), "has no image gone:1 in its namespace k8s.io") {
		t.Errorf("an image that isn't there: %v", err)
	}
}

func TestImport(t *testing.T) {
	archive := bytes.Repeat([]byte("0123456789abcdef"), 20*chunk/16+3)
	for name, r := range map[string]io.Reader{
		"at once": bytes.NewReader(archive), "in pieces": iotest.HalfReader(bytes.NewReader(archive)),
		"with its end": iotest.DataErrReader(bytes.NewReader(archive)),
	} {
		t.Run(name, func(t *testing.T) {
			f := &fake{}
			names, err := start(t, f).Import(t.Context(), r, "localhost/imported")
			want := []string{"docker.io/library/app:1", "localhost/imported:2"}
			if err != nil || !slices.Equal(names, want) {
				t.Fatalf("imported %q, %v; want %q", names, err, want)
			}
			if !bytes.Equal(f.archive, archive) {
				t.Errorf("containerd got %d bytes, want the %d of the archive", len(f.archive), len(archive))
			}
			ref := f.store.GetExtraReferences()[0]
			if !ref.GetIsPrefix() || !ref.GetAllowOverwrite() || len(f.store.GetUnpacks()) != 1 ||
				f.store.GetPlatforms()[0].GetOS() != "linux" {
				t.Errorf("asked for %v", f.store)
			}
		})
	}
}

func TestImportsThatFail(t *testing.T) {
	for name, c := range map[string]struct {
		refuse  error
		archive io.Reader
		want    string
	}{
		"no archive": {
			status.Error(codes.InvalidArgument, "unrecognized image format"), strings.NewReader("x"),
			"import: unrecognized image format",
		},
		"a file that can't be read": {
			nil, io.MultiReader(strings.NewReader("x"), iotest.ErrReader(errors.New("disk broken"))),
			"read the archive: disk broken",
		},
		"old": {
			status.Error(codes.Unimplemented, "unknown service"), strings.NewReader("x"),
			"it takes version 1.7 or newer (unknown service)",
		},
	} {
		t.Run(name, func(t *testing.T) {
			names, err := start(t, &fake{refuse: c.refuse}).Import(t.Context(), c.archive, "x")
			if err == nil || !strings.Contains(err.Error(), c.want) || names != nil {
				t.Errorf("imported %q, error %v; want %q", names, err, c.want)
			}
		})
	}
}

func TestDial(t *testing.T) {
	if _, err := Dial("npipe://x"); err == nil || !strings.Contains(err.Error(), "want a unix socket") {
		t.Errorf("a pipe of Windows: %v", err)
	}
	client, err := Dial(filepath.Join(t.TempDir(), "none.sock"))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	for what, err := range map[string]error{
		"pin":    client.Pin(t.Context(), []string{"x"}, true),
		"import": func() error { _, err := client.Import(t.Context(), strings.NewReader("x"), "y"); return err }(),
	} {
		if err == nil || !strings.Contains(fmt.Sprint(err), "containerd doesn't answer") {
			t.Errorf("%s without containerd: %v", what, err)
		}
	}
}
