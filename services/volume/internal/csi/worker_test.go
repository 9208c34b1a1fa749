package csi

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	csiapi "github.com/container-storage-interface/spec/lib/go/csi"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"kubelot.dev/bus/topic"
	"kubelot.dev/services/volume/internal/plugin"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// api is what the API server has.
type api struct{ err error }

func (a api) GetSecret(_ context.Context, namespace, name string) (*corev1.Secret, error) {
	return &corev1.Secret{Data: map[string][]byte{"key": []byte("s3cret of " + namespace + "/" + name)}}, a.err
}

func (a api) CreateToken(context.Context, string, string,
	*authenticationv1.TokenRequest,
) (*authenticationv1.TokenRequest, error) {
	return &authenticationv1.TokenRequest{Status: authenticationv1.TokenRequestStatus{Token: "t0ken"}}, a.err
}

type silent struct{}

func (silent) Take(string, bool) error { return nil }
func (silent) Warn(string, string)     {}
func (silent) Alive()                  {}

// bed is a driver, what it is registered with, and a pod.
type bed struct {
	t       *testing.T
	root    string
	node    *node
	drivers *Drivers
	volumes *Volumes
	api     api
}

func newBed(t *testing.T, spec storagev1.CSIDriverSpec) *bed {
	t.Helper()
	b := &bed{t: t, root: t.TempDir(), drivers: NewDrivers(), node: &node{
		answers: map[string][]error{}, entered: make(chan context.Context, 1), goOn: make(chan struct{}), stages: true,
	}}
	if spec.VolumeLifecycleModes == nil {
		spec.VolumeLifecycleModes = []storagev1.VolumeLifecycleMode{storagev1.VolumeLifecycleEphemeral}
	}
	b.drivers.SetObject("d", &storagev1.CSIDriver{ObjectMeta: metav1.ObjectMeta{Name: "d"}, Spec: spec})
	b.drivers.Synced()
	socket := filepath.Join(b.root, "s")
	listener, err := new(net.ListenConfig).Listen(t.Context(), "unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	csiapi.RegisterNodeServer(server, b.node)
	var served sync.WaitGroup
	served.Go(func() { _ = server.Serve(listener) })
	t.Cleanup(func() { b.drivers.Close(); server.Stop(); served.Wait() })
	b.register(socket)
	b.restart()
	return b
}

func (b *bed) register(socket string) {
	b.drivers.Registered(map[string]topic.Plugin{"CSIPlugin.d": {
		Type: topic.CSIPlugin, Name: "d", PluginEndpoint: topic.PluginEndpoint{Endpoint: socket},
	}})
}

// restart is another process on the same disk.
func (b *bed) restart() {
	b.volumes = New(b.root, "n1", b.drivers, Ports{Tokens: b.api, Secrets: b.api, Log: slog.New(slog.DiscardHandler)})
}

func (b *bed) dir() string { return filepath.Join(b.root, "pods/u1/volumes/kubernetes.io~csi/v") }

func (b *bed) mount(ctx context.Context) error {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p", UID: "u1"},
		Spec:       corev1.PodSpec{ServiceAccountName: "sa"},
	}
	v := &corev1.Volume{Name: "v", VolumeSource: corev1.VolumeSource{CSI: &corev1.CSIVolumeSource{
		Driver: "d", VolumeAttributes: map[string]string{"colour": "blue"},
		NodePublishSecretRef: &corev1.LocalObjectReference{Name: "sec"},
	}}}
	result, err := b.volumes.Mount(ctx, plugin.Request{Pod: pod, Volume: v, Dir: b.dir(), Calls: silent{}})
	if err == nil && result.HostPath != filepath.Join(b.dir(), "mount") {
		b.t.Errorf("it is at %s", result.HostPath)
	}
	return err
}

func (b *bed) mounts(want string) {
	b.t.Helper()
	err := b.mount(b.t.Context())
	if (err == nil) != (want == "") || (err != nil && !strings.Contains(err.Error(), want)) {
		b.t.Errorf("mount: %v; want %q", err, want)
	}
	if err != nil && (strings.Contains(err.Error(), "s3cret") || strings.Contains(err.Error(), "t0ken")) {
		b.t.Errorf("the error has a secret: %v", err)
	}
}

func (b *bed) unmounts(want string) {
	b.t.Helper()
	err := b.volumes.Unmount(b.t.Context(), b.dir())
	if (err == nil) != (want == "") || (err != nil && !strings.Contains(err.Error(), want)) {
		b.t.Errorf("unmount: %v; want %q", err, want)
	}
}

// is reports what the disk says of the volume.
func (b *bed) is(want step) {
	b.t.Helper()
	r, err := readRecord(b.dir())
	if err != nil || r.step(b.volumes.boot) != want {
		b.t.Errorf("the record says %q, %v; want %q", r.step(b.volumes.boot), err, want)
	}
	if _, err := os.Lstat(b.dir()); want == stepNone && !errors.Is(err, os.ErrNotExist) {
		b.t.Errorf("the directory is left: %v", err)
	}
}

func (b *bed) calls(want ...string) {
	b.t.Helper()
	if got := b.node.all(); !slices.Equal(got, want) {
		b.t.Errorf("the driver was called %q; want %q", got, want)
	}
}

func TestInline(t *testing.T) {
	yes := true
	b := newBed(t, storagev1.CSIDriverSpec{
		PodInfoOnMount: &yes, TokenRequests: []storagev1.TokenRequest{{Audience: "a"}}, ServiceAccountTokenInSecrets: &yes,
	})
	b.mounts("")
	b.is(stepPublished)
	r := b.node.last
	context, secrets := r.GetVolumeContext(), r.GetSecrets()
	if context["colour"] != "blue" || context["csi.storage.k8s.io/pod.uid"] != "u1" ||
		context["csi.storage.k8s.io/ephemeral"] != "true" || context["csi.storage.k8s.io/serviceAccount.tokens"] != "" {
		t.Errorf("context %v", context)
	}
	if secrets["key"] != "s3cret of ns/sec" ||
		!strings.HasPrefix(secrets["csi.storage.k8s.io/serviceAccount.tokens"], `{"a":{"token":"t0ken"`) {
		t.Errorf("secrets %v", secrets)
	}
	if r.GetStagingTargetPath() != "" || r.GetVolumeId() != "csi-"+hexSum("u1v") {
		t.Errorf("request %v", r)
	}
	b.mounts("") // nothing to do
	b.restart()
	b.mounts("") // nor for the next process
	b.unmounts("")
	b.unmounts("")
	b.is(stepNone)
	b.calls("publish", "unpublish")
}

func TestOutcomesOfPublish(t *testing.T) {
	b := newBed(t, storagev1.CSIDriverSpec{})
	b.node.answers["publish"] = []error{
		status.Error(codes.Internal, "no"), status.Error(codes.Unavailable, "perhaps"), status.Error(codes.Aborted, "busy"),
	}
	b.mounts("rpc error: code = Internal desc = no")
	b.is(stepNone)
	b.mounts("perhaps")
	b.is(stepPublishing)
	b.restart()
	b.unmounts("") // it may be there
	b.is(stepNone)
	b.mounts("busy")
	b.is(stepPublishing)
	b.mounts("")
	b.is(stepPublished)
	b.calls("publish", "publish", "unpublish", "publish", "publish")
}

func TestOutcomesOfUnpublish(t *testing.T) {
	b := newBed(t, storagev1.CSIDriverSpec{})
	b.mounts("")
	b.node.answers["unpublish"] = []error{status.Error(codes.Internal, "no"), status.Error(codes.DeadlineExceeded, "late")}
	b.unmounts("no")
	b.is(stepUnpublishing)
	b.unmounts("late")
	b.is(stepUnpublishing)
	// The pod wants it again: what was begun is ended first.
	b.mounts("")
	b.is(stepPublished)
	b.calls("publish", "unpublish", "unpublish", "unpublish", "publish")
}

func TestRepublish(t *testing.T) {
	yes := true
	b := newBed(t, storagev1.CSIDriverSpec{RequiresRepublish: &yes})
	b.mounts("")
	b.node.answers["publish"] = []error{status.Error(codes.Internal, "no"), status.Error(codes.Unavailable, "perhaps")}
	b.mounts("no")
	b.is(stepPublished)
	b.mounts("perhaps")
	b.is(stepPublished)
	if _, err := os.Lstat(filepath.Join(b.dir(), "mount")); err != nil {
		t.Errorf("the pod has lost its volume: %v", err)
	}
	b.calls("publish", "publish", "publish")
}

// The end of a pod doesn't break off a call, of which then nobody would know how it ended; the daemon's end does.
func TestCallsOfAPodThatEnds(t *testing.T) {
	for _, cause := range []error{plugin.ErrTerminated, errors.New("the daemon stops")} {
		b := newBed(t, storagev1.CSIDriverSpec{})
		b.node.hang = "publish"
		ctx, cancel := context.WithCancelCause(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- b.mount(ctx) }()
		calling := <-b.node.entered
		cancel(cause)
		if errors.Is(cause, plugin.ErrTerminated) {
			if calling.Err() != nil {
				t.Error("the call is broken off")
			}
			close(b.node.goOn)
			<-ended
			b.is(stepPublished)
			continue
		}
		if err := <-ended; err == nil {
			t.Error("the call goes on though the daemon ends")
		}
		b.is(stepPublishing)
	}
}

func TestHostileDrivers(t *testing.T) {
	b := newBed(t, storagev1.CSIDriverSpec{})
	b.node.answers["publish"] = []error{status.Error(codes.Internal, "a\nb\x1b[31m"+strings.Repeat("x", 1<<20))}
	err := b.mount(t.Context())
	if err == nil || len(err.Error()) > 2*maxError || strings.ContainsAny(err.Error(), "\n\x1b") {
		t.Errorf("%.200v", err)
	}
	// The driver says that it has unpublished the volume, and has not: what is in it isn't touched.
	b.mounts("")
	inside := filepath.Join(b.dir(), "mount", "precious")
	if err := os.WriteFile(inside, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	b.node.answers["unpublish"] = []error{nil}
	b.drivers.Close()
	b.unmounts("not found in the list of registered CSI drivers")
	b.mounts("") // the pod goes on with what it has
	if _, err := os.Lstat(inside); err != nil {
		t.Error(err)
	}
}

func TestModes(t *testing.T) {
	b := newBed(t, storagev1.CSIDriverSpec{
		VolumeLifecycleModes: []storagev1.VolumeLifecycleMode{storagev1.VolumeLifecyclePersistent},
	})
	b.mounts(`volume mode "Ephemeral" not supported by driver d (only supports ["Persistent"])`)
	b.drivers.SetObject("d", nil)
	b.mounts(`volume mode "Ephemeral" not supported by driver d (no CSIDriver object)`)
	b.is(stepNone)
	b.calls()
}

// What a kubelet has published is published again, as it does itself after its restart, and taken back.
func TestTakenOver(t *testing.T) {
	b := newBed(t, storagev1.CSIDriverSpec{})
	if err := errors.Join(os.MkdirAll(filepath.Join(b.dir(), "mount"), 0o750), os.WriteFile(
		filepath.Join(b.dir(), recordName), []byte(`{"driverName":"d","volumeHandle":"csi-`+hexSum("u1v")+
			`","volumeLifecycleMode":"Ephemeral","specVolID":"v"}`), 0o600)); err != nil {
		t.Fatal(err)
	}
	b.is(stepUncertain)
	b.node.answers["publish"] = []error{status.Error(codes.Internal, "no")}
	b.mounts("no")
	b.is(stepUncertain)
	b.unmounts("")
	b.is(stepNone)
	b.calls("publish", "unpublish")
}

func TestDamagedDirectories(t *testing.T) {
	b := newBed(t, storagev1.CSIDriverSpec{})
	if err := os.MkdirAll(filepath.Join(b.dir(), "mount"), 0o750); err != nil {
		t.Fatal(err)
	}
	b.unmounts("") // empty: nothing is lost
	b.is(stepNone)
	if err := errors.Join(os.MkdirAll(filepath.Join(b.dir(), "mount", "precious"), 0o750),
		os.WriteFile(filepath.Join(b.dir(), recordName), nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	b.unmounts("never with its content")
	b.calls()
}
