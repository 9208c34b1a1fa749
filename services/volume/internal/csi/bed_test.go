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
	"time"

	csiapi "github.com/container-storage-interface/spec/lib/go/csi"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"kubelot.dev/bus/topic"
	"kubelot.dev/daemon/mounttest"
	"kubelot.dev/services/volume/internal/driver"
	"kubelot.dev/services/volume/internal/plugin"
)

func TestMain(m *testing.M) {
	mounttest.Enter()
	goleak.VerifyTestMain(m)
}

// api is what the API server has.
type api struct {
	err error
	// asked counts the tokens that were asked for; life is how long they are valid.
	asked int
	life  time.Duration
	// attachment is the one VolumeAttachment.
	attachment *storagev1.VolumeAttachment
}

func (a *api) GetVolumeAttachment(_ context.Context, name string) (*storagev1.VolumeAttachment, error) {
	if a.attachment == nil || a.attachment.Name != name {
		return nil, apierrors.NewNotFound(storagev1.Resource("volumeattachments"), name)
	}
	return a.attachment, a.err
}

func (a *api) GetSecret(_ context.Context, namespace, name string) (*corev1.Secret, error) {
	return &corev1.Secret{Data: map[string][]byte{"key": []byte("s3cret of " + namespace + "/" + name)}}, a.err
}

func (a *api) CreateToken(context.Context, string, string,
	*authenticationv1.TokenRequest,
) (*authenticationv1.TokenRequest, error) {
	a.asked++
	return &authenticationv1.TokenRequest{Status: authenticationv1.TokenRequestStatus{
		Token: "t0ken", ExpirationTimestamp: metav1.NewTime(time.Now().Add(a.life)),
	}}, a.err
}

type silent struct{}

func (silent) Take(string, bool) error { return nil }
func (silent) Warn(string, string)     {}
func (silent) Tell(topic.Event)        {}
func (silent) Alive()                  {}

// events are the Events that are told.
type events struct {
	silent
	told *[]string
}

func (e events) Tell(event topic.Event) { *e.told = append(*e.told, event.Reason+": "+event.Message) }

// bed is a driver, what it is registered with, and a pod.
type bed struct {
	t         *testing.T
	root      string
	socketDir string
	node      *node
	drivers   *driver.Drivers
	volumes   *Volumes
	api       api
	// group is the pod's fsGroup.
	group *int64
	// told are the Events of pods with persistent volumes.
	told []string
}

func newBed(t *testing.T, spec storagev1.CSIDriverSpec) *bed {
	t.Helper()
	b := &bed{t: t, root: t.TempDir(), drivers: driver.New(), node: &node{
		answers: map[string][]error{}, entered: make(chan context.Context, 1), goOn: make(chan struct{}), stages: true,
	}}
	if spec.VolumeLifecycleModes == nil {
		spec.VolumeLifecycleModes = []storagev1.VolumeLifecycleMode{storagev1.VolumeLifecycleEphemeral}
	}
	b.drivers.SetObject("d", &storagev1.CSIDriver{ObjectMeta: metav1.ObjectMeta{Name: "d"}, Spec: spec})
	b.drivers.Synced()
	b.socketDir = b.root
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

// unread is another process that doesn't know the CSIDriver objects yet; Synced tells it that all are known.
func (b *bed) unread() {
	object, err := b.drivers.Object("d")
	if err != nil {
		b.t.Fatal(err)
	}
	b.drivers.Close()
	b.drivers = driver.New()
	b.t.Cleanup(b.drivers.Close)
	b.drivers.SetObject("d", object)
	b.register(filepath.Join(b.socketDir, "s"))
	b.restart()
}

// restartDriver has the driver registered again, so that it is asked again what it can do.
func (b *bed) restartDriver() {
	b.drivers.Registered(nil)
	b.register(filepath.Join(b.socketDir, "s"))
}

// restart is another process on the same disk.
func (b *bed) restart() {
	b.volumes = New(b.root, "n1", b.drivers, Ports{
		Tokens: &b.api, Secrets: &b.api, Attachments: &b.api, Log: slog.New(slog.DiscardHandler),
	})
}

func (b *bed) dir() string { return filepath.Join(b.root, "pods/u1/volumes/kubernetes.io~csi/v") }

func (b *bed) mount(ctx context.Context) error {
	_, err := b.mountResult(ctx)
	return err
}

func (b *bed) mountResult(ctx context.Context) (plugin.Result, error) {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p", UID: "u1"},
		Spec:       corev1.PodSpec{ServiceAccountName: "sa", SecurityContext: &corev1.PodSecurityContext{FSGroup: b.group}},
	}
	v := &corev1.Volume{Name: "v", VolumeSource: corev1.VolumeSource{CSI: &corev1.CSIVolumeSource{
		Driver: "d", VolumeAttributes: map[string]string{"colour": "blue"},
		NodePublishSecretRef: &corev1.LocalObjectReference{Name: "sec"},
	}}}
	result, err := b.volumes.Mount(ctx, plugin.Request{Pod: pod, Volume: v, Dir: b.dir(), Calls: silent{}})
	if err == nil && result.HostPath != filepath.Join(b.dir(), "mount") {
		b.t.Errorf("it is at %s", result.HostPath)
	}
	return result, err
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
	var got step
	if err == nil {
		got, err = b.volumes.step(r, filepath.Join(b.dir(), "mount"))
	}
	if err != nil || got != want {
		b.t.Errorf("the record says %q, %v; want %q", got, err, want)
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
