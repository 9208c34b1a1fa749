package csi

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"kubelot.dev/services/volume/internal/driver"
	"kubelot.dev/services/volume/internal/plugin"
	"kubelot.dev/services/volume/internal/tokens"
)

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
	b.is(stepUncertain)
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

// A token is asked for once, until most of its life is over; what the API server refuses then is no failure while the
// old one is valid.
func TestTokensAreKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := &api{life: time.Hour}
		kept := tokens.New()
		use := tokens.Use{Dir: "/d", Pod: &corev1.Pod{}}
		object := &storagev1.CSIDriver{Spec: storagev1.CSIDriverSpec{
			TokenRequests: []storagev1.TokenRequest{{Audience: "a"}, {}},
		}}
		asks := func(want int, fails bool) {
			t.Helper()
			got, err := kept.For(t.Context(), server, use, object)
			if (err != nil) != fails || (err == nil && !strings.Contains(got[driver.KeyTokens], `"a":{"token":"t0ken"`)) {
				t.Errorf("got %v, %v", got, err)
			}
			if server.asked != want {
				t.Errorf("the API server was asked for %d tokens, want %d", server.asked, want)
			}
		}
		asks(2, false)
		time.Sleep(47 * time.Minute)
		asks(2, false)
		time.Sleep(2 * time.Minute)
		server.err = errors.New("away")
		asks(4, false)
		time.Sleep(12 * time.Minute)
		asks(5, true)
		server.err = nil
		asks(7, false)
		kept.Forget("/d")
		asks(9, false)
	})
}

// The tokens of a pod that never had its volume go with the pod.
func TestTokensOfAPodThatNeverHadIt(t *testing.T) {
	b := newBed(t, storagev1.CSIDriverSpec{TokenRequests: []storagev1.TokenRequest{{Audience: "a"}}})
	b.api.life = time.Hour
	b.node.answers["publish"] = []error{status.Error(codes.Internal, "no"), status.Error(codes.Internal, "no")}
	b.mounts("no")
	b.mounts("no")
	if b.api.asked != 1 {
		t.Errorf("the API server was asked for %d tokens, want 1", b.api.asked)
	}
	b.unmounts("")
	b.mounts("")
	if b.api.asked != 2 {
		t.Error("the token is kept though the pod has lost the volume")
	}
	b.calls("publish", "publish", "publish")
}

// What a driver writes anew is given to the pod's group too.
func TestRepublishedFilesAreTheGroups(t *testing.T) {
	yes, all, group := true, storagev1.FileFSGroupPolicy, int64(4321)
	b := newBed(t, storagev1.CSIDriverSpec{RequiresRepublish: &yes, FSGroupPolicy: &all})
	b.group = &group
	for _, name := range []string{"first", "second"} {
		b.node.writes = name
		b.mounts("")
		var stat unix.Stat_t
		if err := unix.Stat(filepath.Join(b.dir(), "mount", name), &stat); err != nil || int64(stat.Gid) != group {
			t.Errorf("file %s is group %d's, %v", name, stat.Gid, err)
		}
	}
	b.is(stepPublished)
	b.calls("publish", "publish")
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
	if err == nil || len(err.Error()) > 2<<10 || strings.ContainsAny(err.Error(), "\n\x1b") {
		t.Errorf("%.200v", err)
	}
	// The driver says that it has unpublished the volume, and has not: what is in it isn't touched.
	b.mounts("")
	inside := filepath.Join(b.dir(), "mount", "precious")
	if err := os.WriteFile(inside, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	b.node.lies = true
	b.unmounts("never with its content")
	if _, err := os.Lstat(inside); err != nil {
		t.Error(err)
	}
	b.calls("publish", "publish", "unpublish")
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
