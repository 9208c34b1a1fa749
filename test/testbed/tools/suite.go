package tools

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
)

// suite lists what runs Kubernetes' end-to-end suite: some minutes the first time.
func (b *Box) suite() []build {
	module := b.kubernetesModule()
	test := filepath.Join(b.kubernetesDir(), "suite", "e2e_test.go")
	// The suite leaves out specs by its own version.
	version := "-s -w -X k8s.io/component-base/version.gitVersion=" + KubernetesVersion
	return []build{
		b.ofSuite("ginkgo", hashFiles(module...), "build", "-v", "-ldflags=-s -w", "-o", b.Path("ginkgo"),
			"github.com/onsi/ginkgo/v2/ginkgo"),
		b.ofSuite("e2e.test", hashFiles(append(module, test)...)+version,
			"test", "-c", "-ldflags", version, "-o", b.Path("e2e.test"), "./suite"),
	}
}

// nonewprivs is a program of the suite's images.
func (b *Box) nonewprivs() build {
	return b.ofSuite("nonewprivs", hashFiles(b.kubernetesModule()...), "build", "-v", "-ldflags=-s -w", "-o",
		b.Path("nonewprivs"), "k8s.io/kubernetes/test/images/nonewprivs")
}

func (b *Box) ofSuite(name, stamp string, args ...string) build {
	return build{
		name: name, stamp: stamp, programs: []string{name}, dir: b.kubernetesDir(),
		env:     []string{"CGO_ENABLED=0", "GOWORK=off"},
		command: append([]string{"nice", "go"}, args...),
	}
}

// KubernetesSource is the directory of k8s.io/kubernetes in Go's module cache.
func (b *Box) KubernetesSource(ctx context.Context) (string, error) {
	cmd := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", "k8s.io/kubernetes")
	cmd.Dir = b.kubernetesDir()
	cmd.Env = append(cmd.Environ(), "GOWORK=off")
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("find the source of k8s.io/kubernetes: %w", err)
	}
	return strings.TrimSpace(string(out)), nil
}
