package asnode

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"kubelot.dev/test/e2e/kit"
	"kubelot.dev/test/testbed/images"
	"kubelot.dev/test/testbed/kubeadm"
	"kubelot.dev/test/testbed/tools"
	"kubelot.dev/test/vm/guest"
)

var (
	// node is the machine that all tests share.
	node *guest.Guest
	// bed is the cluster on this host, as the end-to-end tests see one.
	bed *kit.Bed
	// host is the control plane on this host, as kubeadm would have made it.
	host *kubeadm.Cluster
)

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) (code int) {
	flag.Parse()
	ctx := context.Background()
	files, err := payload(ctx, os.Getenv("VM_PACKAGES"))
	if err != nil {
		fmt.Fprintln(os.Stderr, "prepare the machine:", err)
		return 1
	}
	kit.Patience = guest.Patience
	node, err = guest.Start(ctx, guest.Options{
		Dir: os.Getenv("VM_DIR"), Out: os.Stderr, Runtime: guest.DebianContainerd, Payload: files,
	})
	if err != nil {
		fmt.Fprintln(os.Stderr, "start the machine:", err)
		return 1
	}
	defer func() { code = node.End(code) }()
	bed, err = kit.Over(node.Cluster)
	if err == nil {
		// Nodes get serving certificates by request, and may stand still for long.
		host, err = kubeadm.Prepare(ctx, node.Cluster, "serverTLSBootstrap: true\n",
			"--node-monitor-grace-period="+guest.Patience.String())
	}
	if err == nil {
		err = prepareMachine(ctx)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "prepare the cluster and the machine:", err)
		return 1
	}
	return m.Run()
}

// What the machine has below /payload.
const (
	packagesDir = "packages" // kubelot's, as they are handed out
	debianDir   = "debian"   // a repository for apt
	images136   = "images/control-plane.tar"
)

// payload says what the machine gets: programs, kubelot's packages, packages of Debian, and the images of a control
// plane.
func payload(ctx context.Context, packages string) (map[string]string, error) {
	if packages == "" {
		return nil, errors.New("VM_PACKAGES must name a directory with kubelot's deb packages: make vm-test does all of it")
	}
	box, err := tools.Ensure(ctx, os.Stderr, tools.WithControlPlane)
	if err != nil {
		return nil, err
	}
	program, err := box.EnsureKubeadm(ctx)
	if err != nil {
		return nil, err
	}
	files := map[string]string{"bin/kubeadm": program, "bin/k8s-testbed": box.Path("k8s-testbed")}
	for _, pattern := range []string{"*.deb", "compact/*.deb"} {
		found, err := filepath.Glob(filepath.Join(packages, pattern))
		if err != nil || len(found) == 0 {
			return nil, fmt.Errorf("%s has no packages: %w", filepath.Join(packages, pattern), err)
		}
		for _, path := range found {
			files[filepath.Join(packagesDir, filepath.Dir(pattern), filepath.Base(path))] = path
		}
	}
	repository, err := debianRepository(ctx, filepath.Join(box.Root, ".cache", "vm-debian"))
	if err != nil {
		return nil, err
	}
	for _, path := range repository {
		files[filepath.Join(debianDir, filepath.Base(path))] = path
	}
	files[images136], err = controlPlane(ctx, box, program)
	return files, err
}

// controlPlane makes the images that kubeadm runs as static pods, in an archive, unless it is there already.
func controlPlane(ctx context.Context, box *tools.Box, program string) (string, error) {
	etcd, err := box.EnsureEtcd(ctx)
	if err != nil {
		return "", err
	}
	references, err := kubeadm.Images(ctx, program)
	if err != nil {
		return "", err
	}
	ofEtcd := map[string]string{"etcd": references["etcd"]}
	delete(references, "etcd")
	all, err := images.Named(box.Path("k8s-testbed"), references)
	if err != nil {
		return "", err
	}
	more, err := images.Named(etcd, ofEtcd)
	if err != nil {
		return "", err
	}
	archive := filepath.Join(box.Root, ".cache", "vm-control-plane.tar")
	return archive, images.Archive(archive, append(all, more...)...)
}
