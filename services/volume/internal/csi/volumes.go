package csi

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"kubelot.dev/daemon/mountpoint"
	"kubelot.dev/services/volume/internal/attach"
	"kubelot.dev/services/volume/internal/driver"
	"kubelot.dev/services/volume/internal/mounts"
	"kubelot.dev/services/volume/internal/payload"
	"kubelot.dev/services/volume/internal/plugin"
	"kubelot.dev/services/volume/internal/selinux"
	"kubelot.dev/services/volume/internal/tokens"
)

const (
	// pluginName is the kubelet's name of the plug-in, dirName that of its directories below pods.
	pluginName = "kubernetes.io/csi"
	dirName    = "kubernetes.io~csi"
	// mountName is what a driver makes in the directory of a pod's volume.
	mountName = "mount"
	// unreadPause is the pause before a volume that serves as it is is looked at again, because its driver's CSIDriver
	// object was not known.
	unreadPause = 10 * time.Second
	// republishEvery is how often a driver that asks for it publishes a volume again, less some jitter.
	republishEvery = time.Minute
)

// driverName is CSI's form of a name. It becomes part of paths.
var driverName = regexp.MustCompile(`^[a-zA-Z0-9]([a-zA-Z0-9.-]{0,61}[a-zA-Z0-9])?$`)

// Secrets reads secrets with the node's own credentials: it may get those that volumes of its pods name.
type Secrets interface {
	GetSecret(ctx context.Context, namespace, name string) (*corev1.Secret, error)
}

// Ports are what the volumes need besides their drivers.
type Ports struct {
	Tokens      plugin.Tokens
	Secrets     Secrets
	Attachments attach.Attachments
	// Alone is true on a node of which no attach-detach controller knows.
	Alone bool
	// Labels may be nil.
	Labels *selinux.Book
	Log    *slog.Logger
}

// Volumes are all volumes of CSI drivers.
type Volumes struct {
	kept
	node   string
	tokens *tokens.Kept
	// Attached is told of the Node by the caller.
	Attached *attach.Attached
	Others   Others
	// freed is told of volumes that a pod has given back.
	freed chan struct{}
}

// New are the volumes below rootDir. The node's name goes into the records.
func New(rootDir, node string, drivers *driver.Drivers, ports Ports) *Volumes {
	v := &Volumes{
		kept: kept{
			disk:    disk{root: rootDir, boot: bootID(), used: newInUse()},
			drivers: drivers, ports: ports, locks: new(plugin.Locks),
		},
		node:     node,
		tokens:   tokens.New(),
		Attached: attach.New(node, ports.Attachments, drivers),
		freed:    make(chan struct{}, 1),
	}
	v.Others = Others{v}
	return v
}

// bootID is the boot of the machine; empty where the kernel doesn't say, so that every mount is uncertain.
func bootID() string {
	data, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(data))
}

// Kinds are the volumes that pods have of drivers.
func (v *Volumes) Kinds() plugin.List {
	return plugin.List{
		{
			Name: pluginName, Dir: dirName, Plugin: v,
			Claims: func(spec *corev1.Volume) bool { return spec.CSI != nil },
		},
		{Name: pluginName, Dir: dirName, Block: true, Plugin: devices{v}},
	}
}

// Mount publishes a volume of the pod's own spec.
func (v *Volumes) Mount(ctx context.Context, r plugin.Request) (plugin.Result, error) {
	t := inline(r)
	if !driverName.MatchString(t.driver) {
		return plugin.Result{}, fmt.Errorf("%.100q can't be the name of a CSI driver", t.driver)
	}
	return v.mount(ctx, r, task{target: t, wanted: true, request: &r})
}

// MountPersistent publishes a persistent volume for a pod, and stages it before where the driver does that.
func (v *Volumes) MountPersistent(ctx context.Context, r plugin.Request, pv *corev1.PersistentVolume, readOnly bool,
) (plugin.Result, error) {
	t := v.at(persistent(r.Pod, pv, readOnly), string(r.Pod.UID))
	if !driverName.MatchString(t.driver) || t.handle == "" || len(t.handle) > maxHandle {
		return plugin.Result{}, fmt.Errorf("persistent volume %q can't be mounted: its CSI driver is %.100q and its handle "+
			"%.100q", pv.Name, t.driver, t.handle)
	}
	return v.mount(ctx, r, task{target: t, wanted: true, request: &r})
}

// maxHandle is the length of a volume handle, in bytes. The specification of CSI wants at most 128.
const maxHandle = 4 << 10

// mount brings the volume up. A volume that the pod has already, and that can't be published again, serves as it is.
func (v *Volumes) mount(ctx context.Context, r plugin.Request, t task) (plugin.Result, error) {
	there := v.has(t.target)
	known, err := v.describe(&t, r, there)
	switch {
	case there && !known:
		result := v.result(ctx, t)
		result.RefreshAt = time.Now().Add(unreadPause)
		return result, nil
	case err != nil && !there:
		return plugin.Result{}, err
	}
	t.again = there && t.republishes()
	switch {
	case there && (!t.again || r.Ending):
		return v.result(ctx, t), nil
	case r.Ending:
		return plugin.Result{}, plugin.ErrNotMounted
	}
	giveBack, err := v.locks.Take(ctx, t.key())
	if err != nil {
		return plugin.Result{}, t.failed(publish, err)
	}
	defer giveBack()
	if err = v.begin(ctx, t); err != nil && !there {
		return plugin.Result{}, err
	}
	return v.result(ctx, t), err
}

// describe fills in what the CSIDriver object says of the volume; known is false while nobody knows the object.
func (v *Volumes) describe(t *task, r plugin.Request, there bool) (known bool, err error) {
	if there {
		t.label = labelOf(t.dir) // it keeps what it has
	}
	if t.object, err = v.drivers.Object(t.driver); err != nil {
		return false, t.failed(publish, err)
	}
	if err = t.checkMode(); err != nil {
		return true, t.failed(publish, err)
	}
	if !there {
		t.label, err = v.mountLabel(*t, r)
	}
	return true, err
}

// begin is settle for a volume that the pod is to have. It is called with the volume's lock.
func (v *Volumes) begin(ctx context.Context, t task) error {
	if t.block {
		// By the link the volume is found again when the pod goes, however far it came.
		if err := t.device.MakeLink(t.point); err != nil {
			return t.failed(publish, err)
		}
	}
	return v.settle(ctx, t)
}

func (v *Volumes) result(ctx context.Context, t task) plugin.Result {
	result := plugin.Result{
		ReadOnly: t.readOnly, Plugin: pluginName + ":" + t.driver, Measured: v.measured(ctx, t.driver),
	}
	if t.block {
		result.Device = t.device.Link
		return result
	}
	result.HostPath, result.SELinuxRelabel = t.point, t.label == ""
	if t.republishes() {
		result.RefreshAt = time.Now().Add(republishEvery - rand.N(republishEvery/10))
	}
	return result
}

// giveToGroup gives the volume's files to the pod's fsGroup.
func (t task) giveToGroup(ctx context.Context) error {
	gid := payload.FSGroup(t.pod)
	if gid == nil {
		return nil
	}
	policy := t.pod.Spec.SecurityContext.FSGroupChangePolicy
	if policy != nil && *policy == corev1.FSGroupChangeOnRootMismatch && mounts.HasGroup(t.point, *gid) {
		return nil
	}
	if err := plugin.GiveToGroup(ctx, *t.request, pluginName+":"+t.driver, t.name, t.point); err != nil {
		return fmt.Errorf("applyFSGroup failed for vol %s: %w", t.handle, err)
	}
	return nil
}

// Unmount takes the volume from the pod; dir is the pod's directory of it. The record there says what it is.
func (v *Volumes) Unmount(ctx context.Context, dir string) error {
	return v.unmount(ctx, v.at(target{name: filepath.Base(dir)}, plugin.PodOf(dir)))
}

func (v *Volumes) unmount(ctx context.Context, t target) error {
	v.tokens.Forget(t.dir) // a volume that the driver has refused has no record
	r, err := readRecord(t.dir)
	if r == nil && err == nil && t.block {
		r, err = readRecord(v.stageDir(t)) // the kubelet has only this one
	}
	if errors.Is(err, errDamaged) || (err == nil && r == nil) {
		return v.unknown(t, err)
	}
	if err != nil {
		return err
	}
	t.driver, t.handle, t.persistent = r[keyDriver], r[keyHandle], r[keyMode] != ephemeralMode
	if !driverName.MatchString(t.driver) {
		return fmt.Errorf("%s: %w: %.100q can't be the name of a CSI driver", t.dir, errDamaged, t.driver)
	}
	giveBack, err := v.locks.Take(ctx, t.key())
	if err != nil {
		return err
	}
	defer giveBack()
	err = v.settle(ctx, task{target: t, podOnly: true})
	if err == nil && t.block {
		err = t.device.RemoveLink()
	}
	var failure *plugin.Failure
	switch {
	case errors.As(err, &failure):
		return failure.Err // the daemon says what it is about
	case err == nil && t.persistent:
		signal(v.freed)
	}
	return err
}

// unknown removes a directory of which nobody knows the driver, if nothing is in it.
func (v *Volumes) unknown(t target, why error) error {
	if !t.block && !exists(t.dir) {
		return nil
	}
	if why == nil {
		why = fmt.Errorf("%s is missing", filepath.Join(t.dir, recordName))
	}
	mounted, err := mountpoint.Mounted(t.point)
	if err == nil && !mounted && t.block {
		err = t.device.Release()
	}
	switch {
	case err != nil:
		return err
	case mounted:
		return fmt.Errorf("it is not known which driver has mounted %s, because %w; unmount it by hand", t.point, why)
	}
	err = v.clear(v.podPlace(t))
	if err == nil && t.block {
		err = t.device.RemoveLink()
	}
	signal(v.freed) // it may have been in the way of a volume's unstaging
	return err
}
