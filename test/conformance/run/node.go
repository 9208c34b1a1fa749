package run

import (
	"bytes"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/template"

	"kubelot.dev/test/conformance"
	"kubelot.dev/test/conformance/node/units"
	"kubelot.dev/test/testbed/cluster"
	"kubelot.dev/test/testbed/images"
	"kubelot.dev/test/testbed/node"
)

// nodeName is the name of the Node.
const nodeName = "testbed"

// systemSpec asks nothing of the machine: what a spec needs it looks for itself.
const systemSpec = `os: Linux
kernelSpec: {versions: [".*"]}
`

//go:embed kubelet.yaml
var nodeConfig string

// onNode runs test/e2e_node. The suite has an API server of its own, writes the agent's configuration, and starts,
// stops and restarts the agent with systemd's commands, which package units answers. Its paths are fixed
// (/var/lib/kubelet), and so the whole run, containerd included, has mounts of its own.
type onNode struct {
	cluster *cluster.Cluster
	manager *units.Manager
	stop    func() // of the manager's socket
	mounts  *mounts
	extra   []string // of the environment
}

func nodeStage(ctx context.Context, o Options) (stage, error) {
	if err := ownMounts(); err != nil {
		return nil, err
	}
	if o.Scope.Suite.Target == conformance.NUMA().Target {
		// A few processors emulate the eight: of more threads of containerd, runc, the agents and the suite most look for
		// work in vain, and a container takes seconds from its start to its first word.
		if err := os.Setenv("GOMAXPROCS", "2"); err != nil {
			return nil, err
		}
	}
	m, err := mountFirst()
	if err != nil {
		return nil, err
	}
	c, err := cluster.Start(ctx, cluster.Options{Dir: filepath.Join(o.Out, "bed"), Out: o.Log, Registry: true})
	if err != nil {
		return nil, errors.Join(err, m.unmount())
	}
	s := &onNode{cluster: c, mounts: m, stop: func() {}}
	s.manager = units.New(func(args []string) (units.Process, error) { return s.launch(o.Agent, args) })
	if err := s.prepare(ctx); err != nil {
		return nil, errors.Join(err, s.close())
	}
	return s, nil
}

func (s *onNode) prepare(ctx context.Context) (err error) {
	c := s.cluster
	if _, err := c.PushE2EImages(ctx); err != nil {
		return err
	}
	plugin, err := images.Named(c.Tools.Path("sampledeviceplugin"), map[string]string{
		"sampledeviceplugin": "registry.k8s.io/e2e-test-images/sample-device-plugin:1.7",
	})
	if err != nil {
		return err
	}
	for _, img := range plugin {
		if _, err := c.Registry.Push(ctx, img); err != nil {
			return err
		}
	}
	if err := s.mounts.give(c.Bed); err != nil {
		return err
	}
	// The specs look for a pod's cgroup where a machine's only node has it.
	if err := c.Bed.CoverCgroups(); err != nil {
		return err
	}
	if err := s.writeFiles(); err != nil {
		return err
	}
	if s.extra, err = units.Install(s.shims(), s.socket()); err != nil {
		return err
	}
	// The suite wants to see an executable of that name before it has systemd-run start it.
	if err := os.Symlink(c.Tools.Path("kubelet"), filepath.Join(s.shims(), "kubelet")); err != nil {
		return fmt.Errorf("make shims: %w", err)
	}
	//nolint:contextcheck // it serves until stop is called
	s.stop, err = s.manager.Serve(s.socket())
	if err != nil {
		s.stop = func() {}
	}
	return err
}

func (s *onNode) shims() string { return s.cluster.Bed.Path("shims") }

func (s *onNode) socket() string { return s.cluster.Bed.Path("units.sock") }

func (s *onNode) writeFiles() error {
	b := s.cluster.Bed
	var config bytes.Buffer
	err := template.Must(template.New("").Parse(nodeConfig)).Execute(&config, map[string]any{
		"Bed": b, "PodLogs": b.Path("podlogs"), "Resolv": b.Path("resolv.conf"), "Plugins": b.Path("volumeplugins"),
	})
	if err != nil {
		return fmt.Errorf("configure the agent: %w", err)
	}
	for name, content := range map[string]string{
		"kubelet.yaml": config.String(), "system-spec.yaml": systemSpec,
		"resolv.conf": "nameserver " + b.Gateway.String() + "\n",
	} {
		if err := os.WriteFile(b.Path(name), []byte(content), 0o644); err != nil {
			return fmt.Errorf("configure the agent: %w", err)
		}
	}
	return os.MkdirAll(b.Path("podlogs"), 0o755)
}

// launch starts the agent with the flags that the suite has for its kubelet.
func (s *onNode) launch(agent node.Agent, args []string) (units.Process, error) {
	flags := args[1:]
	if agent != node.Kubelet {
		flags = slices.Concat([]string{"up", "--run-dir=" + s.cluster.Bed.Path("run")}, flags)
	}
	return startAgent(s.cluster, agent, flags)
}

func (s *onNode) program() string { return s.cluster.Tools.Path("e2e_node.test") }

func (s *onNode) env() []string { return s.extra }

func (s *onNode) args(o Options, dir string) []string {
	b := s.cluster.Bed
	args := []string{"--test.run=^TestE2eNode$"}
	for _, flag := range slices.Concat([]string{
		"--timeout=" + o.Timeout.String(), "--no-color", "--silence-skips", "--v",
	}, o.Scope.Flags()) {
		args = append(args, "--ginkgo."+strings.TrimPrefix(flag, "--"))
	}
	return append(args,
		"--node-name="+nodeName,
		"--container-runtime-endpoint=unix://"+s.cluster.CRI.Socket,
		"--k8s-bin-dir="+s.shims(),
		"--kubelet-config-file="+b.Path("kubelet.yaml"),
		"--kubelet-flags=--node-ip="+b.Gateway.String()+" --kubelet-cgroups= --cert-dir="+b.Path("kubelet-pki"),
		"--system-spec-file="+b.Path("system-spec.yaml"),
		"--runtime-config=api/all=true",
		"--prepull-images=false",
		// A busy machine takes more than the two minutes that it has by default.
		"--server-start-timeout=10m",
		"--report-dir="+dir,
	)
}

func (s *onNode) close() error {
	s.stop()
	return errors.Join(s.manager.Close(), s.mounts.unmount(), s.cluster.Stop())
}
