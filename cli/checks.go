package cli

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"kubelot.dev/bus/topic"
	"kubelot.dev/cli/internal/health"
	"kubelot.dev/cli/internal/settings"
	"kubelot.dev/cli/internal/up"
	"kubelot.dev/cli/internal/why/diagnose"
	"kubelot.dev/cri"
	"kubelot.dev/daemon/config"
)

func checkRoot() health.Finding {
	if os.Geteuid() == 0 {
		return health.Good(health.Machine, "user", "root")
	}
	return health.Bad(health.Machine, "user", "not root", "the runtime's socket and the bus's keys are for root only, so "+
		"that the checks below may fail for that reason", "run it with sudo")
}

func checkCgroups(c *config.Config) health.Finding {
	const name = "cgroups"
	var stat unix.Statfs_t
	if err := unix.Statfs("/sys/fs/cgroup", &stat); err != nil {
		return health.Bad(health.Machine, name, err.Error(), "no cgroup filesystem is mounted at /sys/fs/cgroup",
			"mount -t cgroup2 none /sys/fs/cgroup, or let systemd do it at boot")
	}
	switch {
	case stat.Type == unix.CGROUP2_SUPER_MAGIC:
		return health.Good(health.Machine, name, "version 2")
	case !*c.Kubelet.FailCgroupV1:
		return health.Good(health.Machine, name, "version 1, which failCgroupV1: false allows")
	}
	return health.Bad(health.Machine, name, "version 1, and failCgroupV1 is true", "the machine was booted with the old "+
		"hierarchies of cgroups, which Kubernetes gives up", "boot with systemd.unified_cgroup_hierarchy=1, or set "+
		"failCgroupV1: false in the configuration")
}

func checkTools() health.Finding {
	for _, tool := range []string{"mount", "umount"} {
		if _, err := exec.LookPath(tool); err != nil {
			return health.Bad(health.Machine, "tools", tool+" isn't in PATH", "the package that has it isn't installed, or "+
				"PATH is "+os.Getenv("PATH"), "apt-get install mount, or the distribution's util-linux")
		}
	}
	return health.Good(health.Machine, "tools", "mount and umount are there")
}

func checkRuntime(ctx context.Context, c *config.Config) health.Finding {
	ctx, cancel := context.WithTimeout(ctx, busPatience)
	defer cancel()
	client, err := cri.Dial(c.RuntimeEndpoint, cri.Options{Timeout: busPatience})
	if err != nil {
		return runtimeAway(c, err)
	}
	defer client.Close()
	version, err := client.Version(ctx)
	if err != nil {
		return runtimeAway(c, err)
	}
	status, err := client.Status(ctx, false)
	if err != nil {
		return runtimeAway(c, err)
	}
	for _, condition := range status.Status.GetConditions() {
		if !condition.Status {
			if cause, advice := unready(condition.Type); cause != "" {
				problem := strings.TrimSpace(fmt.Sprintf("%s is false: %s %s", condition.Type, condition.Reason, condition.Message))
				return health.Bad(health.Runtime, "runtime", problem, cause, health.OfRuntime(advice, version.RuntimeName))
			}
		}
	}
	return health.Good(health.Runtime, "runtime", fmt.Sprintf("%s %s at %s", version.RuntimeName, version.RuntimeVersion,
		c.RuntimeEndpoint))
}

// runtimeAway is the finding of a runtime that gives no answer.
func runtimeAway(c *config.Config, err error) health.Finding {
	f := diagnose.Runtime(err.Error())
	return health.Bad(health.Runtime, "runtime", err.Error(), f.Why,
		health.OfRuntime(f.Do, c.RuntimeEndpoint)+"; if its socket isn't "+c.RuntimeEndpoint+", name it with "+
			"--container-runtime-endpoint")
}

// unready is why a condition of the runtime is false, and what to do; nothing for one that nobody needs.
func unready(condition string) (cause, advice string) {
	switch condition {
	case runtimeapi.RuntimeReady:
		return "the runtime answers, but says that it can run nothing", "journalctl -u containerd"
	case runtimeapi.NetworkReady:
		return "there is no network for pods: the network's DaemonSet isn't installed, or doesn't run on this node",
			"ls /etc/cni/net.d; kubectl get daemonset -A; pods on the host network run meanwhile"
	}
	return "", ""
}

func checkCrew(ctx context.Context, c *config.Config, now time.Time) []health.Finding {
	ctx, cancel := context.WithTimeout(ctx, busPatience)
	defer cancel()
	const name = "bus"
	running, err := processes(procDir, c.RunDir)
	if err != nil {
		return []health.Finding{health.Bad(health.Machine, "processes", err.Error(), "/proc can't be read", "mount /proc")}
	}
	if !up.Answers(ctx, c.BusSocket) {
		cause, advice := "the crew doesn't run", "start it: systemctl start kubelot.target, or kubelot up"
		if len(running) > 0 {
			cause, advice = "daemons run, but kubelot-bus doesn't", "systemctl start kubelot-bus; journalctl -u kubelot-bus"
		}
		if pid := running["bus"]; pid != 0 {
			cause = fmt.Sprintf("kubelot-bus runs (process %d), but doesn't listen: it has just started, or hangs", pid)
			advice = "journalctl -u kubelot-bus; systemctl restart kubelot-bus (the pods go on running)"
		}
		return []health.Finding{health.Bad(health.Bus, name, "nothing listens at "+c.BusSocket, cause,
			health.Units(advice, running))}
	}
	healths, err := readHealth(ctx, filepath.Clean(c.RunDir))
	if err != nil {
		return []health.Finding{health.Bad(health.Bus, name, err.Error(), "it listens, but gives no answer: it has just "+
			"started, its store can't be read, or the key isn't the bus's own",
			health.Units("journalctl -u kubelot-bus", running))}
	}
	findings := []health.Finding{health.Good(health.Bus, name, "answers at "+c.BusSocket)}
	return append(findings, health.Crew(healths, running, now)...)
}

// processes are those of the daemons that run.
func processes(proc, runDir string) (map[string]int, error) {
	crew, err := settings.Crew(proc, runDir)
	if err != nil {
		return nil, err
	}
	running := map[string]int{}
	for _, d := range crew {
		running[d.Name] = d.PID
	}
	return running, nil
}

func readHealth(ctx context.Context, runDir string) (map[string]topic.DaemonHealth, error) {
	conn, err := (&busFlags{runDir: runDir}).dial(ctx)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	return topic.Health.Read(ctx, conn)
}
