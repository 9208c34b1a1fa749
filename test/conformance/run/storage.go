package run

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"kubelot.dev/test/csidriver"
	"kubelot.dev/test/testbed/proc"
	"kubelot.dev/test/testbed/tools"
)

const (
	// driverName is what testdriver.yaml calls the driver.
	driverName = "storage.csi.test"
	// maxVolumes is what a spec makes pods for at once.
	maxVolumes = 20
	// registerTimeout is for a busy machine.
	registerTimeout = 2 * time.Minute
)

//go:embed testdriver.yaml
var testDriver string

// onStorage runs the part of test/e2e that judges a CSI driver.
type onStorage struct {
	*onCluster
	started []*proc.Process // the driver and its sidecars
}

func storageStage(ctx context.Context, o Options) (stage, error) {
	on, err := newCluster(ctx, o)
	if err != nil {
		return nil, err
	}
	s := &onStorage{onCluster: on}
	if err := s.prepare(ctx); err != nil {
		return nil, errors.Join(err, s.close()) //nolint:contextcheck // also when ctx has ended
	}
	return s, nil
}

func (s *onStorage) prepare(ctx context.Context) error {
	if err := s.cluster.Tools.EnsurePackages(ctx, []string{"e2fsprogs", "xfsprogs"}); err != nil {
		return err
	}
	if err := os.WriteFile(s.definition(), []byte(testDriver), 0o644); err != nil {
		return fmt.Errorf("describe the driver to the suite: %w", err)
	}
	if err := s.createCSIDriver(ctx); err != nil {
		return err
	}
	program, err := s.cluster.Tools.EnsureCSIDriver(ctx)
	if err != nil {
		return err
	}
	err = s.start("csidriver", program, []string{
		"--name", driverName, "--node-id", s.node.Name, "--state", s.state(), "--socket", s.socket(),
		"--registry", filepath.Join(s.node.RootDir, "plugins_registry"), "--topology", driverName + "/zone=a",
		"--max-volumes", fmt.Sprint(maxVolumes),
	})
	if err != nil {
		return err
	}
	for _, which := range []tools.Sidecar{tools.Provisioner, tools.Attacher, tools.Resizer} {
		program, args, err := s.cluster.Tools.CSISidecar(ctx, which, s.socket(), s.cluster.ControlPlane.AdminKubeconfig())
		if err != nil {
			return err
		}
		if err := s.start(string(which), program, args); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithTimeoutCause(ctx, registerTimeout, fmt.Errorf("waited %v", registerTimeout))
	defer cancel()
	return s.started[0].WaitReady(ctx, s.registered)
}

func (s *onStorage) start(name, program string, args []string) error {
	process, err := proc.Start(proc.Spec{Name: name, Path: program, Args: args, Dir: s.cluster.Bed.Logs()})
	if err == nil {
		s.started = append(s.started, process)
	}
	return err
}

// createCSIDriver makes the object that says what the driver wants of the node agent: all that there is to do.
func (s *onStorage) createCSIDriver(ctx context.Context) error {
	yes, file := true, storagev1.FileFSGroupPolicy
	return s.cluster.ControlPlane.Create(ctx, "/apis/storage.k8s.io/v1/csidrivers", &storagev1.CSIDriver{
		TypeMeta:   metav1.TypeMeta{APIVersion: "storage.k8s.io/v1", Kind: "CSIDriver"},
		ObjectMeta: metav1.ObjectMeta{Name: driverName},
		Spec: storagev1.CSIDriverSpec{
			AttachRequired: &yes, PodInfoOnMount: &yes, FSGroupPolicy: &file,
			VolumeLifecycleModes: []storagev1.VolumeLifecycleMode{
				storagev1.VolumeLifecyclePersistent, storagev1.VolumeLifecycleEphemeral,
			},
		},
	})
}

// registered is an error until the node agent has the driver.
func (s *onStorage) registered(ctx context.Context) error {
	var csi storagev1.CSINode
	if err := s.cluster.ControlPlane.Get(ctx, "/apis/storage.k8s.io/v1/csinodes/"+s.node.Name, &csi); err != nil {
		return err
	}
	for _, driver := range csi.Spec.Drivers {
		if driver.Name == driverName {
			return nil
		}
	}
	return errors.New("the CSINode hasn't the driver")
}

func (s *onStorage) definition() string { return s.cluster.Bed.Path("testdriver.yaml") }

// state is short: the driver's socket is in it.
func (s *onStorage) state() string { return s.cluster.Bed.Path("csi") }

func (s *onStorage) socket() string { return filepath.Join(s.state(), "csi.sock") }

func (s *onStorage) args(o Options, dir string) []string {
	return append(s.onCluster.args(o, dir), "--storage.testdriver="+s.definition())
}

func (s *onStorage) close() error {
	for _, process := range s.started {
		process.Kill()
	}
	return errors.Join(csidriver.Release(context.Background(), s.state()), s.onCluster.close())
}
