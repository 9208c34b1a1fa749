package containerd

import (
	"context"
	_ "embed"
	"fmt"
	"os"
	"path/filepath"

	"kubelot.dev/test/testbed/tools"
)

// ReleaseEnv names the environment variable that says which release beds run: debian for what Debian has, else what is
// built into .bin.
const ReleaseEnv = "TESTBED_CONTAINERD"

var (
	//go:embed config.toml
	currentConfig string
	//go:embed config-1.6.toml
	debianConfig string
)

// release is a containerd with its client, its shim and a runc. The template of its configuration fits its version.
type release struct {
	containerd, ctr, runc string
	shims                 string // the directory of the shim
	config                string
}

// chosen is the release that ReleaseEnv asks for. That of Debian is fetched if it isn't there.
func chosen(ctx context.Context, box *tools.Box) (release, error) {
	switch name := os.Getenv(ReleaseEnv); name {
	case "":
		return current(box), nil
	case "debian":
		root, err := box.EnsureDebianContainerd(ctx)
		if err != nil {
			return release{}, err
		}
		programs := filepath.Join(root, "usr", "bin")
		return release{
			containerd: filepath.Join(programs, "containerd"), ctr: filepath.Join(programs, "ctr"),
			runc: filepath.Join(root, "usr", "sbin", "runc"), shims: programs, config: debianConfig,
		}, nil
	default:
		return release{}, fmt.Errorf("%s=%s: want debian or nothing", ReleaseEnv, name)
	}
}

// current is the release that is built into .bin.
func current(box *tools.Box) release {
	return release{
		containerd: box.Path("containerd"), ctr: box.Path("ctr"), runc: box.Path("runc"), shims: box.Bin,
		config: currentConfig,
	}
}
