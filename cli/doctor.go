package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"kubelot.dev/bus/topic"
	"kubelot.dev/cli/internal/up"
	"kubelot.dev/cri"
	"kubelot.dev/daemon/config"
)

// finding is the outcome of one check; an empty problem is good news.
type finding struct {
	name    string
	detail  string
	problem string
	advice  string
}

func doctorCommand(out io.Writer) *cobra.Command {
	var flags config.Flags
	c := &cobra.Command{
		Use:     "doctor [kubelet flags]",
		Short:   "Check what the crew needs on this node, and the health of each daemon.",
		Example: "  kubelot doctor --config /var/lib/kubelet/config.yaml",
		Args:    cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			resolved, err := flags.Load()
			if err != nil {
				return err
			}
			findings := examine(c.Context(), resolved)
			fmt.Fprint(out, report(findings))
			for _, f := range findings {
				if f.problem != "" {
					return errors.New("some checks failed")
				}
			}
			return nil
		},
	}
	c.Flags().SortFlags = false
	flags.Register(c.Flags())
	return c
}

// report draws the findings.
func report(findings []finding) string {
	var text strings.Builder
	for _, f := range findings {
		if f.problem == "" {
			fmt.Fprintf(&text, "ok   %s: %s\n", f.name, f.detail)
			continue
		}
		fmt.Fprintf(&text, "BAD  %s: %s\n     -> %s\n", f.name, f.problem, f.advice)
	}
	return text.String()
}

func examine(ctx context.Context, c *config.Config) []finding {
	ctx, cancel := context.WithTimeout(ctx, busPatience)
	defer cancel()
	findings := []finding{checkRoot(), checkCgroups(c), checkRuntime(ctx, c), checkTools()}
	return append(findings, checkCrew(ctx, c)...)
}

func checkRoot() finding {
	f := finding{name: "user", detail: "root", advice: "run it with sudo"}
	if os.Geteuid() != 0 {
		f.problem = "not root: most of the checks below need root"
	}
	return f
}

func checkCgroups(c *config.Config) finding {
	f := finding{name: "cgroups", detail: "version 2", advice: "boot with systemd.unified_cgroup_hierarchy=1, or set " +
		"failCgroupV1: false in the configuration"}
	var stat unix.Statfs_t
	if err := unix.Statfs("/sys/fs/cgroup", &stat); err != nil {
		f.problem = err.Error()
		return f
	}
	if stat.Type == unix.CGROUP2_SUPER_MAGIC {
		return f
	}
	f.detail = "version 1, which failCgroupV1: false allows"
	if *c.Kubelet.FailCgroupV1 {
		f.problem = "version 1, and failCgroupV1 is true"
	}
	return f
}

func checkRuntime(ctx context.Context, c *config.Config) finding {
	f := finding{name: "runtime", advice: "start the container runtime, or name its socket with " +
		"--container-runtime-endpoint"}
	client, err := cri.Dial(c.RuntimeEndpoint, cri.Options{Timeout: busPatience})
	if err != nil {
		f.problem = err.Error()
		return f
	}
	defer client.Close()
	version, err := client.Version(ctx)
	if err != nil {
		f.problem = err.Error()
		return f
	}
	f.detail = fmt.Sprintf("%s %s at %s", version.RuntimeName, version.RuntimeVersion, c.RuntimeEndpoint)
	status, err := client.Status(ctx, false)
	if err != nil {
		f.problem = err.Error()
		return f
	}
	for _, condition := range status.Status.GetConditions() {
		vital := condition.Type == runtimeapi.RuntimeReady || condition.Type == runtimeapi.NetworkReady
		if vital && !condition.Status {
			f.problem = fmt.Sprintf("%s is false: %s %s", condition.Type, condition.Reason, condition.Message)
			f.advice = "see the runtime's log; NetworkReady needs a CNI configuration in /etc/cni/net.d"
		}
	}
	return f
}

func checkTools() finding {
	f := finding{name: "tools", detail: "mount and umount are there", advice: "install util-linux"}
	for _, tool := range []string{"mount", "umount"} {
		if _, err := exec.LookPath(tool); err != nil {
			f.problem = tool + " isn't in PATH"
		}
	}
	return f
}

func checkCrew(ctx context.Context, c *config.Config) []finding {
	socket := finding{
		name: "bus", detail: "answers at " + c.BusSocket,
		advice: "start the crew: kubelot up, or systemctl start kubelot.target",
	}
	if !up.Answers(ctx, c.BusSocket) {
		socket.problem = "nothing listens at " + c.BusSocket
		return []finding{socket}
	}
	healths, err := readHealth(ctx, filepath.Clean(c.RunDir))
	if err != nil {
		socket.problem = err.Error()
		return []finding{socket}
	}
	return append([]finding{socket}, judge(healths, time.Now())...)
}

func readHealth(ctx context.Context, runDir string) (map[string]topic.DaemonHealth, error) {
	conn, err := (&busFlags{runDir: runDir}).dial(ctx)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	return topic.Health.Read(ctx, conn)
}
