package kit

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	csiapi "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"kubelot.dev/test/csidriver"
	"kubelot.dev/test/testbed/tools"
)

// Driver is a CSI driver on the bed's node, a process of its own.
type Driver struct {
	Name string
	// State is its directory, for csidriver.ReadCalls and csidriver.SetFault.
	State string

	t       testing.TB
	rules   csidriver.Rules
	program string
	args    []string
	process *exec.Cmd
	// starts is how many processes there have been.
	starts int
	// registry is where the driver makes the socket by which it registers.
	registry string
	// sidecars are those that the driver has.
	sidecars []tools.Sidecar
	bed      *Bed
	box      *tools.Box
}

// CSIDriver makes the CSIDriver object of that name, and a driver that Start starts with these further flags.
func (b *Bed) CSIDriver(t testing.TB, name string, spec storagev1.CSIDriverSpec, flags ...string) *Driver {
	t.Helper()
	box, err := tools.Find(t.Output())
	if err != nil {
		t.Fatal(err)
	}
	program, err := box.EnsureCSIDriver(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	drivers := b.Client.StorageV1().CSIDrivers()
	if _, err := drivers.Create(t.Context(), &storagev1.CSIDriver{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: spec,
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	// Not the test's own directory: its name may have a "#", and what is behind that is no part of the path of a "unix:"
	// address.
	state, err := os.MkdirTemp("", "csidriver-") //nolint:usetesting // see above
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(state); err != nil {
			t.Error(err)
		}
	})
	d := &Driver{
		Name: name, State: state, t: t, rules: rulesOf(spec, flags), bed: b, box: box, program: program,
		registry: filepath.Join(b.Node.RootDir, "plugins_registry"),
	}
	d.args = append([]string{
		"--name", name, "--node-id", NodeName, "--state", state, "--socket", filepath.Join(state, "csi.sock"),
		"--registry", d.registry,
	}, flags...)
	t.Cleanup(func() {
		d.Kill()
		ctx, cancel := context.WithTimeout(context.Background(), Patience)
		defer cancel()
		d.judge()
		gone := os.Remove(d.registration())
		if errors.Is(gone, fs.ErrNotExist) {
			gone = nil // with its node
		}
		if err := errors.Join(gone, drivers.Delete(ctx, name, metav1.DeleteOptions{})); err != nil {
			t.Error(err)
		}
	})
	return d
}

// rulesOf are what a driver with these flags may expect of its callers.
func rulesOf(spec storagev1.CSIDriverSpec, flags []string) csidriver.Rules {
	return csidriver.Rules{
		Stages: !slices.Contains(flags, "--no-stage"), Attaches: !slices.Contains(flags, "--no-attach"),
		Republishes: spec.RequiresRepublish != nil && *spec.RequiresRepublish,
	}
}

// Restages says that a kubelet starts on a node that has volumes of the driver already.
func (d *Driver) Restages() { d.rules.Restages = true }

// judge reports what its callers have done wrong.
func (d *Driver) judge() {
	calls, err := csidriver.ReadCalls(d.State)
	if err != nil {
		d.t.Error(err)
	}
	for _, fault := range csidriver.Judge(calls, d.rules) {
		d.t.Errorf("the calls of the driver %s: %s", d.Name, fault)
	}
}

// Start starts the driver, which registers by itself.
func (d *Driver) Start() {
	d.t.Helper()
	d.process = exec.Command(d.program, d.args...)
	d.process.Stdout, d.process.Stderr = d.t.Output(), d.t.Output()
	d.process.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := d.process.Start(); err != nil {
		d.t.Fatal(err)
	}
	d.starts++
}

// Sidecars starts programs that act on the driver's controller for the API's objects, until the test ends.
func (d *Driver) Sidecars(which ...tools.Sidecar) {
	d.t.Helper()
	d.sidecars = append(d.sidecars, which...)
	for _, s := range which {
		d.sidecar(s)
	}
}

// sidecar starts one. It ends by itself when the driver dies, as in a pod, where it is started again.
func (d *Driver) sidecar(s tools.Sidecar) {
	d.t.Helper()
	program, args, err := d.box.CSISidecar(d.t.Context(), s, d.socket(), d.bed.ControlPlane.AdminKubeconfig())
	if err != nil {
		d.t.Fatal(err)
	}
	process := exec.Command(program, args...)
	process.Stdout, process.Stderr = d.t.Output(), d.t.Output()
	process.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := process.Start(); err != nil {
		d.t.Fatal(err)
	}
	d.t.Cleanup(func() {
		_ = process.Process.Kill()
		_ = process.Wait()
	})
}

// socket is where the driver serves.
func (d *Driver) socket() string { return filepath.Join(d.State, "csi.sock") }

// registration is the socket by which it registers.
func (d *Driver) registration() string {
	return csidriver.Config{Name: d.Name, Registry: d.registry}.RegistrationSocket()
}

// controller calls the driver's controller. The driver must run.
func (d *Driver) controller(call func(context.Context, csiapi.ControllerClient) error) {
	d.t.Helper()
	conn, err := grpc.NewClient("unix://"+d.socket(),
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		d.t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	ctx, cancel := context.WithTimeout(d.t.Context(), Patience)
	defer cancel()
	if err := call(ctx, csiapi.NewControllerClient(conn)); err != nil {
		d.t.Fatal(err)
	}
}

// Provision makes a volume and returns its handle.
func (d *Driver) Provision(name string) string {
	d.t.Helper()
	return d.ProvisionOf(name, 0)
}

// ProvisionOf is Provision for a volume of that many bytes; 0 leaves the size to the driver.
func (d *Driver) ProvisionOf(name string, bytes int64) string {
	d.t.Helper()
	request := &csiapi.CreateVolumeRequest{
		Name: name, CapacityRange: &csiapi.CapacityRange{RequiredBytes: bytes},
		VolumeCapabilities: []*csiapi.VolumeCapability{{
			AccessType: &csiapi.VolumeCapability_Mount{Mount: &csiapi.VolumeCapability_MountVolume{}},
			AccessMode: &csiapi.VolumeCapability_AccessMode{Mode: csiapi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER},
		}},
	}
	var handle string
	d.controller(func(ctx context.Context, c csiapi.ControllerClient) error {
		answer, err := c.CreateVolume(ctx, request, grpc.WaitForReady(true))
		handle = answer.GetVolume().GetVolumeId()
		return err
	})
	return handle
}

// Grow does what a resizer does: it makes the volume larger, and leaves the rest to the node.
func (d *Driver) Grow(ns *Namespace, claim, pv, handle string, size resource.Quantity) {
	d.t.Helper()
	d.controller(func(ctx context.Context, c csiapi.ControllerClient) error {
		_, err := c.ControllerExpandVolume(ctx, &csiapi.ControllerExpandVolumeRequest{
			VolumeId: handle, CapacityRange: &csiapi.CapacityRange{RequiredBytes: size.Value()},
		}, grpc.WaitForReady(true))
		return err
	})
	core, o := d.bed.Client.CoreV1(), metav1.PatchOptions{}
	capacity := fmt.Sprintf(`{"spec": {"capacity": {"storage": %q}}}`, size.String())
	status := fmt.Sprintf(`{"status": {"allocatedResources": {"storage": %q},
		"allocatedResourceStatuses": {"storage": "NodeResizePending"}}}`, size.String())
	_, err := core.PersistentVolumes().Patch(d.t.Context(), pv, types.MergePatchType, []byte(capacity), o)
	if err == nil {
		_, err = core.PersistentVolumeClaims(ns.Name).Patch(d.t.Context(), claim, types.MergePatchType, []byte(status), o,
			"status")
	}
	if err != nil {
		d.t.Fatal(err)
	}
}

// Kill ends the driver at once; its sockets stay, as those of a driver that crashed.
func (d *Driver) Kill() {
	if d.process != nil {
		_ = d.process.Process.Kill()
		_ = d.process.Wait()
		d.process = nil
	}
}

// Restart starts a driver that has died, and the sidecars that it had.
func (d *Driver) Restart() {
	d.t.Helper()
	d.Start()
	for _, s := range d.sidecars {
		d.sidecar(s)
	}
}

// Dies waits until the driver has ended by itself.
func (d *Driver) Dies() {
	d.t.Helper()
	ended := make(chan struct{})
	process := d.process
	go func() {
		_ = process.Wait()
		close(ended)
	}()
	select {
	case <-ended:
		d.process = nil
	case <-time.After(Patience):
		d.t.Fatal("the driver goes on")
	}
}

// Fault has calls of the method go wrong; nil ends that.
func (d *Driver) Fault(method string, f *csidriver.Fault) {
	d.t.Helper()
	if err := csidriver.SetFault(d.State, method, f); err != nil {
		d.t.Fatal(err)
	}
}

// Calls are how the calls of these methods have ended, in order, such as "NodePublishVolume OK"; "NodePublishVolume"
// alone has not.
func (d *Driver) Calls(methods ...string) []string {
	d.t.Helper()
	calls, err := csidriver.ReadCalls(d.State)
	if err != nil {
		d.t.Fatal(err)
	}
	wanted := map[string]bool{}
	for _, m := range methods {
		wanted[m] = true
	}
	var list []string
	at := map[int64]int{}
	for _, c := range calls {
		switch {
		case !wanted[c.Method], c.Gone:
		case c.End:
			list[at[c.ID]] += " " + c.Code
		default:
			at[c.ID] = len(list)
			list = append(list, c.Method)
		}
	}
	return list
}

// Called waits until the method has been called more than n times.
func (d *Driver) Called(method string, n int) {
	d.t.Helper()
	Eventually(d.t, "a call of "+method, func() error {
		if calls := d.Calls(method); len(calls) <= n {
			return fmt.Errorf("the driver was called %q", calls)
		}
		return nil
	})
}

// Registered waits until the driver knows that it is registered for the n-th time, and returns how long after since.
func (d *Driver) Registered(n int, since time.Time) time.Duration {
	d.t.Helper()
	var took time.Duration
	Eventually(d.t, "the driver's registration", func() error {
		n := n
		calls, err := csidriver.ReadCalls(d.State)
		for _, c := range calls {
			if c.Method != "NotifyRegistrationStatus" || c.End || c.Gone {
				continue
			}
			if n--; n == 0 {
				took = c.At.Sub(since)
				return nil
			}
		}
		return errors.Join(err, fmt.Errorf("it lacks %d", n))
	})
	return took
}

// Told is an error unless the process of the driver that Start started last has heard that it is registered.
func (d *Driver) Told() error {
	calls, err := csidriver.ReadCalls(d.State)
	starts, told, gone := 0, false, map[int64]bool{}
	for _, c := range calls {
		switch {
		case c.Start:
			starts, told = starts+1, false
		case c.Gone:
			gone[c.ID] = true
		case c.End && c.Method == "NotifyRegistrationStatus" && !gone[c.ID]:
			told = c.Code == codes.OK.String()
		}
	}
	if err == nil && (starts < d.starts || !told) {
		err = fmt.Errorf("driver %s has not been told that it is registered", d.Name)
	}
	return err
}

// InCSINode waits until the node's CSINode has the driver, or until it hasn't.
func (d *Driver) InCSINode(want bool) {
	d.t.Helper()
	Follow(d.t, fmt.Sprintf("%s in the CSINode: %t", d.Name, want), func(ctx context.Context) (Watcher, error) {
		return d.bed.Client.StorageV1().CSINodes().Watch(ctx, byName(NodeName))
	}, func(n *storagev1.CSINode) bool {
		return want == slices.ContainsFunc(n.Spec.Drivers, func(one storagev1.CSINodeDriver) bool {
			return one.Name == d.Name
		})
	})
}

// Bound is when the driver made the socket by which it registers.
func (d *Driver) Bound() time.Time {
	d.t.Helper()
	info, err := os.Stat(d.registration())
	if err != nil {
		d.t.Fatal(err)
	}
	return info.ModTime()
}

// Withdraw kills the driver and removes the socket by which it has registered.
func (d *Driver) Withdraw() {
	d.t.Helper()
	d.Kill()
	if err := os.Remove(d.registration()); err != nil {
		d.t.Fatal(err)
	}
}
