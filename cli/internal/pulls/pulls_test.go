package pulls

import (
	"context"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	content "github.com/containerd/containerd/api/services/content/v1"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

func TestMain(m *testing.M) {
	patience = time.Minute
	goleak.VerifyTestMain(m)
}

// contents is containerd's content service, as far as it is asked.
type contents struct {
	content.UnimplementedContentServer
	statuses  []*content.Status
	manifests []*content.Info
	// data are the manifests, and present is what is there of layers, by digest.
	data    map[string]string
	present map[string]int64
}

func (c *contents) ListStatuses(ctx context.Context, _ *content.ListStatusesRequest) (*content.ListStatusesResponse,
	error,
) {
	sent, _ := metadata.FromIncomingContext(ctx)
	if got := sent.Get("containerd-namespace"); len(got) != 1 || got[0] != "k8s.io" {
		return nil, status.Errorf(codes.FailedPrecondition, "namespace is required, got %q", got)
	}
	return &content.ListStatusesResponse{Statuses: c.statuses}, nil
}

func (c *contents) List(r *content.ListContentRequest, s content.Content_ListServer) error {
	if len(r.GetFilters()) != 1 || r.GetFilters()[0] != `labels."containerd.io/gc.ref.content.l.0"` {
		return status.Errorf(codes.InvalidArgument, "filters %q", r.GetFilters())
	}
	for _, m := range c.manifests { // one in each message
		if err := s.Send(&content.ListContentResponse{Info: []*content.Info{m}}); err != nil {
			return err
		}
	}
	return nil
}

func (c *contents) Info(_ context.Context, r *content.InfoRequest) (*content.InfoResponse, error) {
	size, there := c.present[r.GetDigest()]
	if !there {
		return nil, status.Error(codes.NotFound, "not found")
	}
	return &content.InfoResponse{Info: &content.Info{Digest: r.GetDigest(), Size: size}}, nil
}

func (c *contents) Read(r *content.ReadContentRequest, s content.Content_ReadServer) error {
	text, there := c.data[r.GetDigest()]
	if !there {
		return status.Error(codes.NotFound, "not found")
	}
	half := len(text) / 2
	if err := s.Send(&content.ReadContentResponse{Data: []byte(text[:half])}); err != nil {
		return err
	}
	return s.Send(&content.ReadContentResponse{Offset: int64(half), Data: []byte(text[half:])})
}

// serve runs a server with the services, and returns its endpoint.
func serve(t *testing.T, register func(*grpc.Server)) string {
	t.Helper()
	socket := filepath.Join(t.TempDir(), "s")
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	register(server)
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = server.Serve(listener) // ends with the test
	}()
	t.Cleanup(func() {
		server.Stop()
		<-done
	})
	return "unix://" + socket
}

func manifest(digest, source string, layers ...string) *content.Info {
	labels := map[string]string{"containerd.io/gc.ref.content.config": "sha256:config"}
	if registry, repositories, ok := strings.Cut(source, " "); ok {
		labels["containerd.io/distribution.source."+registry] = repositories
	}
	for i, l := range layers {
		labels["containerd.io/gc.ref.content.l."+string(rune('0'+i))] = l
	}
	return &content.Info{Digest: digest, Labels: labels}
}

// A pull is what is there of the layers in a manifest one of whose layers is being fetched.
func TestRead(t *testing.T) {
	c := &contents{
		statuses: []*content.Status{
			{Ref: "layer-sha256:b", Offset: 5 << 20, Total: 0}, // containerd doesn't always know the total
			{Ref: "layer-sha256:c", Offset: 1 << 20, Total: 4 << 20},
			{Ref: "layer-sha256:x", Offset: 3 << 20, Total: 6 << 20},
			{Ref: "manifest-sha256:m9", Offset: 10, Total: 100},
		},
		manifests: []*content.Info{
			manifest("m1", "docker.io library/nginx,mine/nginx", "sha256:a", "sha256:b", "sha256:c", "sha256:d"),
			manifest("m2", "registry.example app", "sha256:x"), // containerd leaves the port out
			manifest("m3", "docker.io library/there", "sha256:a"),
		},
		data: map[string]string{
			"m1": `{"layers": [{"digest": "sha256:a", "size": 1048576}, {"digest": "sha256:b", "size": 10485760},
				{"digest": "sha256:c", "size": 4194304}, {"digest": "sha256:d", "size": 1048576}]}`,
			"m2": `{"layers": [{"digest": "sha256:x", "size": 6291456}]}`,
		},
		present: map[string]int64{"sha256:a": 1 << 20},
	}
	endpoint := serve(t, func(s *grpc.Server) { content.RegisterContentServer(s, c) })
	all, err := Read(t.Context(), endpoint)
	if err != nil || len(all) != 2 {
		t.Fatalf("%v: %+v", err, all)
	}
	for image, want := range map[string]string{
		"nginx":                                   "7.0 of 16.0 MiB are here (1 of 4 layers)",
		"docker.io/mine/nginx:1":                  "7.0 of 16.0 MiB are here (1 of 4 layers)",
		"registry.example:5000/app:v1":            "3.0 of 6.0 MiB are here",
		"nginx@sha256:" + strings.Repeat("0", 64): "7.0 of 16.0 MiB are here (1 of 4 layers)",
		"there": "", "registry.example:5000/other": "", "Not_An_Image": "",
	} {
		p, ok := Of(all, image)
		got := ""
		if ok {
			got = p.String()
		}
		if got != want {
			t.Errorf("%s: %q, want %q", image, got, want)
		}
	}
	twice := append(all, Pull{Repositories: []string{"docker.io/library/nginx"}, Total: 1})
	if p, ok := Of(twice, "nginx"); ok {
		t.Errorf("two images of a repository are pulled, and one is told: %s", p)
	}
}

func TestReadWithoutProgress(t *testing.T) {
	idle := serve(t, func(s *grpc.Server) { content.RegisterContentServer(s, &contents{}) })
	other := serve(t, func(*grpc.Server) {}) // such as CRI-O
	for name, endpoint := range map[string]string{"idle": idle, "another runtime": other} {
		if all, err := Read(t.Context(), endpoint); err != nil || len(all) != 0 {
			t.Errorf("%s: %+v, %v", name, all, err)
		}
	}
	if _, err := Read(t.Context(), "unix://"+filepath.Join(t.TempDir(), "absent")); err == nil {
		t.Error("a runtime that doesn't answer is no error")
	}
	broken := &contents{
		statuses:  []*content.Status{{Ref: "layer-sha256:a"}},
		manifests: []*content.Info{manifest("m1", "docker.io library/nginx", "sha256:a")},
		data:      map[string]string{"m1": "garbage"},
	}
	endpoint := serve(t, func(s *grpc.Server) { content.RegisterContentServer(s, broken) })
	if _, err := Read(t.Context(), endpoint); err == nil || !strings.Contains(err.Error(), "manifest m1") {
		t.Errorf("a manifest that can't be read: %v", err)
	}
}
