package persistent

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"kubelot.dev/services/volume/internal/growth"
	"kubelot.dev/services/volume/internal/plugin"
)

// asks makes the claim larger, as its user and a controller do.
func (b *bed) asks(size string, status corev1.ClaimResourceStatus) {
	is := func(size string) corev1.ResourceList {
		return corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(size)}
	}
	b.volume.Spec.Capacity = is(size)
	b.claim.Spec.Resources.Requests = is(size)
	if b.claim.Status.Capacity == nil {
		b.claim.Status.Capacity = is("64Mi")
	}
	b.claim.Status.AllocatedResources = is(size)
	b.claim.Status.AllocatedResourceStatuses = map[corev1.ResourceName]corev1.ClaimResourceStatus{
		corev1.ResourceStorage: status,
	}
}

func (b *bed) capacity() string {
	size := b.claim.Status.Capacity[corev1.ResourceStorage]
	return size.String()
}

// sizeMiB is the size of the filesystem at the path.
func sizeMiB(t *testing.T, path string) int64 {
	t.Helper()
	var stat syscall.Statfs_t
	must(t, syscall.Statfs(path, &stat))
	return int64(stat.Blocks) * stat.Bsize >> 20
}

// The filesystem of a local disk grows while a pod has it, and before a pod starts.
func TestLocalDiskGrows(t *testing.T) {
	t.Run("ext4", func(t *testing.T) {
		if has, err := unix.PrctlRetInt(unix.PR_CAPBSET_READ, unix.CAP_SYS_RESOURCE, 0, 0, 0); err != nil || has == 0 {
			t.Skipf("root has no CAP_SYS_RESOURCE here, so no ext4 grows while it is mounted: %v", err)
		}
		localDiskGrows(t, "ext4", 64)
	})
	t.Run("xfs", func(t *testing.T) {
		if _, err := exec.LookPath("mkfs.xfs"); err != nil {
			t.Skipf("Debian's package xfsprogs isn't installed: %v", err)
		}
		localDiskGrows(t, "xfs", 320) // the least that mkfs.xfs takes is 300
	})
}

// localDiskGrows has a disk of that many mebibytes become two and three times as large.
func localDiskGrows(t *testing.T, fsType string, unit int64) {
	t.Helper()
	path := diskOf(t, unit)
	source := localAt(path)
	source.Local.FSType = &fsType
	b := newBed(t, source)
	mib := func(n int64) string { return strconv.FormatInt(n*unit, 10) + "Mi" }
	b.claim.Status.Capacity = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(mib(1))}
	one := b.request("u-1")
	first := b.mount(one)
	if first.RefreshAt.Before(time.Now().Add(lookEvery / 2)) {
		t.Errorf("the claim is looked at again at %s", first.RefreshAt)
	}
	before := sizeMiB(t, first.HostPath)
	image, err := exec.Command("losetup", "--noheadings", "--output", "BACK-FILE", path).Output()
	must(t, err)
	must(t, os.Truncate(strings.TrimSpace(string(image)), 2*unit<<20))
	must(t, exec.Command("losetup", "--set-capacity", path).Run())
	b.asks(mib(2), corev1.PersistentVolumeClaimNodeResizePending)

	one.Known, b.asked = first, 0
	if again := b.mount(one); b.asked > 0 || sizeMiB(t, first.HostPath) != before ||
		!again.RefreshAt.Equal(first.RefreshAt) {
		t.Errorf("before it is time: %+v, asked %d times", again, b.asked)
	}
	one.Known.LookAt = time.Now().Add(-time.Second)
	again := b.mount(one)
	if after := sizeMiB(t, first.HostPath); after < before*3/2 || b.capacity() != mib(2) ||
		len(b.claim.Status.AllocatedResourceStatuses) > 0 || again.RefreshAt.Before(time.Now()) {
		t.Errorf("it had %d MiB, has %d, claim %+v, result %+v", before, after, b.claim.Status, again)
	}
	want := `FileSystemResizeSuccessful: MountVolume.NodeExpandVolume succeeded for volume "pv" `
	if !slices.Equal(b.warnings, []string{"Pod " + want, "PersistentVolumeClaim " + want}) {
		t.Errorf("Events %q", b.warnings)
	}
	b.unmount(one, again)

	must(t, os.Truncate(strings.TrimSpace(string(image)), 3*unit<<20))
	must(t, exec.Command("losetup", "--set-capacity", path).Run())
	b.asks(mib(3), "")
	b.claim.Status.AllocatedResourceStatuses, b.claim.Status.AllocatedResources = nil, nil // an old controller
	two := b.request("u-2")
	second := b.mount(two)
	if after := sizeMiB(t, second.HostPath); after < before*5/2 || b.capacity() != mib(3) {
		t.Errorf("it has %d MiB, claim %+v", after, b.claim.Status)
	}
	b.unmount(two, second)
	b.clean()
}

// growing is a driver whose volumes grow, or not.
type growing struct {
	err     error
	in      plugin.InPlace
	grown   []string
	refuses bool
}

func (g *growing) MountPersistent(context.Context, plugin.Request, *corev1.PersistentVolume, bool) (plugin.Result,
	error,
) {
	return plugin.Result{HostPath: "/there"}, nil
}

func (g *growing) InPlace(string) plugin.InPlace { return g.in }
func (g *growing) Grows(string) bool             { return !g.refuses }

func (g *growing) Grow(_ context.Context, _ plugin.Request, pv *corev1.PersistentVolume, size resource.Quantity) error {
	g.grown = append(g.grown, pv.Name+" "+size.String())
	return g.err
}

func TestDriverThatGrows(t *testing.T) {
	const pending, underWay = corev1.PersistentVolumeClaimNodeResizePending,
		corev1.PersistentVolumeClaimNodeResizeInProgress
	late := errors.New("late")
	for _, c := range []struct {
		name    string
		err     error
		fails   string // at the mount
		inUse   string
		status  corev1.ClaimResourceStatus
		has     string
		message string
	}{
		{name: "it grows", has: "128Mi"},
		{
			name: "not while it is in use", err: growth.ErrInUse, status: underWay, has: "64Mi",
			message: "failed to expand pvc with " + growth.ErrInUse.Error(),
		},
		{
			name: "perhaps", err: late, status: underWay, has: "64Mi",
			fails: `FailedMount MountVolume.Setup failed while expanding volume for volume "pv" : late`,
			inUse: `VolumeResizeFailed NodeExpandVolume.NodeExpandVolume failed for volume "pv" : late`,
		},
		{
			name: "never", err: growth.ErrInfeasible, has: "64Mi",
			status: corev1.PersistentVolumeClaimNodeResizeInfeasible,
			fails: `FailedMount MountVolume.Setup failed while expanding volume for volume "pv" : ` +
				growth.ErrInfeasible.Error(),
			inUse: `VolumeResizeFailed NodeExpandVolume.NodeExpandVolume failed for volume "pv" : ` +
				growth.ErrInfeasible.Error(),
			message: "failed to expand pvc with " + growth.ErrInfeasible.Error(),
		},
	} {
		for _, inUse := range []bool{false, true} {
			t.Run(c.name, func(t *testing.T) {
				driver := &growing{err: c.err}
				b := newBed(t, corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{
					Driver: "d", VolumeHandle: "h",
				}})
				b.kinds = Kinds(b.root, b, driver, nil)
				b.asks("128Mi", pending)
				r, want := b.request("u-1"), c.fails
				if inUse {
					r.Known = plugin.Result{
						HostPath: "/there", PersistentVolume: "pv", LookAt: time.Now().Add(-time.Second),
					}
					driver.in = plugin.InPlace{OfDriver: true, There: true, Grows: true}
					want = c.inUse
				}
				if want == "" {
					b.mount(r)
				} else {
					b.fails(r, want)
				}
				status := b.claim.Status
				if status.AllocatedResourceStatuses[corev1.ResourceStorage] != c.status || b.capacity() != c.has ||
					!slices.Equal(driver.grown, []string{"pv 128Mi"}) {
					t.Errorf("claim %+v, grown %q", status, driver.grown)
				}
				message := ""
				if len(status.Conditions) > 0 {
					message = status.Conditions[0].Message
				}
				if message != c.message {
					t.Errorf("the claim says %q, want %q", message, c.message)
				}
			})
		}
	}
}

// Without the API server, and with a driver that has nothing to do, a volume in use stays as it is.
func TestVolumesInUseStayAsTheyAre(t *testing.T) {
	driver := &growing{in: plugin.InPlace{OfDriver: true, There: true, Grows: true}}
	b := newBed(t, corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: "d", VolumeHandle: "h"}})
	b.kinds = Kinds(b.root, b, driver, nil)
	r := b.request("u-1")
	looks := func(asked int) {
		t.Helper()
		b.asked = 0
		r.Known = plugin.Result{HostPath: "/there", PersistentVolume: "pv", LookAt: time.Now().Add(-time.Second)}
		if got := b.mount(r); got.HostPath != "/there" || got.RefreshAt.Before(time.Now().Add(lookEvery/2)) {
			t.Errorf("the result is %+v", got)
		}
		if b.asked != asked || len(driver.grown) > 0 {
			t.Errorf("the API server was asked %d times, want %d; grown %q", b.asked, asked, driver.grown)
		}
	}
	looks(1)
	b.refuse = 100
	looks(1)
	b.refuse = 0
	b.asks("128Mi", corev1.PersistentVolumeClaimControllerResizeInProgress)
	looks(2)
	b.asks("128Mi", corev1.PersistentVolumeClaimNodeResizePending)
	r.Volume.PersistentVolumeClaim.ReadOnly = true
	looks(3)
	if len(b.warnings) != 2 || !strings.HasPrefix(b.warnings[0], "Pod FileSystemResizeFailed: ") {
		t.Errorf("Events %q", b.warnings)
	}
	driver.in.Grows = false
	r.Known.RefreshAt = time.Now().Add(-time.Second)
	b.asked = 0
	if got := b.mount(r); !got.RefreshAt.IsZero() || b.asked > 0 {
		t.Errorf("a driver that makes nothing larger: %+v, asked %d times", got, b.asked)
	}
}

// Of two pods with one claim, the first has it grow, and the second finds it grown. Somebody else may write the claim
// meanwhile.
func TestClaimOfTwoPodsGrowsOnce(t *testing.T) {
	driver := &growing{}
	b := newBed(t, corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: "d", VolumeHandle: "h"}})
	b.kinds = Kinds(b.root, b, driver, nil)
	b.asks("128Mi", corev1.PersistentVolumeClaimNodeResizePending)
	b.conflicts = 2
	var pods sync.WaitGroup
	for _, uid := range []string{"u-1", "u-2"} {
		pods.Go(func() { b.mount(b.request(uid)) })
	}
	pods.Wait()
	if !slices.Equal(driver.grown, []string{"pv 128Mi"}) || b.capacity() != "128Mi" || b.conflicts > 0 {
		t.Errorf("grown %q, claim %+v, conflicts left %d", driver.grown, b.claim.Status, b.conflicts)
	}
}

// Growth in use is measured once for each try. That the volume has to be unmounted first is no failure of the node.
func TestGrowthInUseIsMeasured(t *testing.T) {
	late := errors.New("late")
	for _, c := range []struct{ err, want error }{{nil, nil}, {growth.ErrInUse, nil}, {late, late}} {
		driver := &growing{in: plugin.InPlace{OfDriver: true, There: true, Grows: true}, err: c.err}
		b := newBed(t, corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: "d", VolumeHandle: "h"}})
		b.kinds = Kinds(b.root, b, driver, nil)
		b.asks("128Mi", corev1.PersistentVolumeClaimNodeResizePending)
		r := b.request("u-1")
		r.Known = plugin.Result{HostPath: "/there", PersistentVolume: "pv", LookAt: time.Now().Add(-time.Second)}
		measured := 0
		ctx := plugin.Observed(t.Context(), func(_, operation string, _ bool, _ time.Duration, err error) {
			if measured++; operation != "volume_fs_resize" || !errors.Is(err, c.want) {
				t.Errorf("%v: measured is %s with the error %v", c.err, operation, err)
			}
		})
		if _, err := b.kinds.For(r.Volume).Plugin.Mount(ctx, r); !errors.Is(err, c.want) {
			t.Errorf("%v: the pod is told %v", c.err, err)
		}
		if measured != 1 {
			t.Errorf("%v: measured %d times", c.err, measured)
		}
	}
}

// A hostPath has the size that it has.
func TestHostPathDoesNotGrow(t *testing.T) {
	b := newBed(t, corev1.PersistentVolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: t.TempDir()}})
	b.asks("128Mi", corev1.PersistentVolumeClaimNodeResizePending)
	if got := b.mount(b.request("u-1")); !got.RefreshAt.IsZero() || b.capacity() != "64Mi" || len(b.warnings) > 0 {
		t.Errorf("%+v, claim %+v, Events %q", got, b.claim.Status, b.warnings)
	}
}

// A driver that is away for a moment is asked again later whether volumes grow; one that publishes again and again has
// them grow like any other, and the pod keeps what was published.
func TestGrowthGoesOn(t *testing.T) {
	driver := &growing{in: plugin.InPlace{OfDriver: true, There: true, Due: true, Grows: true}, err: errors.New("late")}
	b := newBed(t, corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: "d", VolumeHandle: "h"}})
	b.kinds = Kinds(b.root, b, driver, nil)
	b.asks("128Mi", corev1.PersistentVolumeClaimNodeResizePending)
	r := b.request("u-1")
	r.Known = plugin.Result{HostPath: "/there", PersistentVolume: "pv"}
	first := b.mount(r)
	if len(driver.grown) > 0 || first.LookAt.Before(time.Now()) {
		t.Errorf("grown %q at the first look of a process; %+v", driver.grown, first)
	}
	r.Known = first
	r.Known.LookAt = time.Now().Add(-time.Second)
	result, err := b.kinds.For(r.Volume).Plugin.Mount(t.Context(), r)
	var failure *plugin.Failure
	if !errors.As(err, &failure) || failure.Reason != volumeResizeFailed || !failure.Costly ||
		result.HostPath != "/there" || !result.LookAt.Equal(r.Known.LookAt) {
		t.Errorf("%+v, %v", result, err)
	}
	driver.err = nil
	if again := b.mount(r); b.capacity() != "128Mi" || again.LookAt.Before(time.Now()) {
		t.Errorf("%+v, claim %+v", again, b.claim.Status)
	}
}
