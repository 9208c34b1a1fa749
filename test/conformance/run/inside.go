package run

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"kubelot.dev/bus/pause"
	"kubelot.dev/test/conformance"
	"kubelot.dev/test/testbed/bed"
	"kubelot.dev/test/testbed/cluster"
	"kubelot.dev/test/testbed/images"
	"kubelot.dev/test/testbed/proc"
	"kubelot.dev/test/testbed/tools"
	"kubelot.dev/test/vm/image"
	"kubelot.dev/test/vm/machine"
)

// Paths in the machine.
const (
	insideOut   = "/var/lib/conformance" // results, and the test bed
	insideTools = machine.Payload + "/bin"
	insideLog   = "conformance.log" // what the program there prints, among its results
)

const (
	// insideMemory is in MiB, less what the NUMA nodes can't share equally. Specs have 1,100 MiB of the first node
	// reserved, and pods ask for more than 256 MiB of each. Next to them are the suite's API server and the registry.
	insideMemory = 6144
	// aroundSuite is what a machine may take for all but the runs of the suite.
	aroundSuite = 2 * time.Hour
	// lookInside is how often the machine is asked how far it is. One that gives no answer mostSilent times in a row,
	// each within answerInside, is lost.
	lookInside   = 20 * time.Second
	answerInside = 5 * time.Minute
	mostSilent   = 10
)

// insidePrograms are those of .bin that the machine needs beside kubelot. A link comes with what it leads to.
var insidePrograms = []string{
	"conformance", "e2e_node.test", "sampledeviceplugin", "k8s-testbed", "kubelet",
	"testbed", "containerd", "containerd-shim-runc-v2", "ctr", "runc", "pause",
}

//go:embed apart.sh
var apart []byte

// inside runs the suite in a virtual machine: this program runs there as on a host, with the programs and images of
// this host, and the results are copied back. They are judged here.
func inside(ctx context.Context, o Options) (results conformance.Results, err error) {
	box, err := tools.Ensure(ctx, o.Log, tools.WithControlPlane)
	if err != nil {
		return nil, err
	}
	// It is only the place of the machine's files: the machine has a test bed of its own.
	b, err := bed.Open(filepath.Join(o.Out, "bed"))
	if err != nil {
		return nil, err
	}
	defer b.Close()
	if err := b.Reset(); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, b.Reset()) }()
	m, err := o.boot(ctx, box, b)
	if err != nil {
		return nil, fmt.Errorf("boot the machine: %w", err)
	}
	defer m.Stop()
	if err := o.launchInside(ctx, m); err != nil {
		return nil, err
	}
	if err := o.follow(ctx, m); err != nil {
		// The logs that are there say how far it came. The machine goes now, also where ctx has ended.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), answerInside)
		defer cancel()
		_, lost := o.takeOut(ctx, m)
		return nil, errors.Join(err, lost)
	}
	return o.takeOut(ctx, m)
}

func (o Options) boot(ctx context.Context, box *tools.Box, b *bed.Bed) (*machine.Machine, error) {
	img, err := image.Ensure(ctx, box, o.Log)
	if err != nil {
		return nil, err
	}
	accelerator, why, err := machine.Accelerator(ctx, img)
	if err != nil {
		return nil, err
	}
	fmt.Fprintf(o.Log, "vm: accelerator %s: %s\n", accelerator, why)
	ports, err := b.Ports(1)
	if err != nil {
		return nil, err
	}
	payload := b.Path("payload")
	if err := o.fill(ctx, box, payload); err != nil {
		return nil, fmt.Errorf("fill the machine's payload: %w", err)
	}
	defer func() { _ = os.RemoveAll(payload) }() // the machine has a copy
	m, err := machine.Start(ctx, machine.Options{
		Dir: b.Path("machine"), Logs: b.Logs(), Image: img, SSHPort: ports[0], Files: insideFiles(), Payload: payload,
		Memory: insideMemory - insideMemory%o.Topology.Sockets, Topology: o.Topology, Accelerator: accelerator,
	})
	if err != nil {
		return nil, err
	}
	// The nodes are shown so that somebody sees that they are there.
	nodes, err := m.Run(ctx, fmt.Sprintf("mkdir -p %[1]s && mount -o ro %[2]s %[1]s && "+
		"lscpu | grep -E '^(CPU\\(s\\)|Thread|Core|Socket|NUMA)'", machine.Payload, machine.PayloadDevice))
	if err != nil {
		m.Stop()
		return nil, err
	}
	fmt.Fprint(o.Log, "vm: the machine is up:\n", nodes)
	return m, nil
}

// insideFiles are what the machine has beside the payload.
func insideFiles() []machine.File {
	return []machine.File{
		{Path: "/etc/hostname", Text: nodeName + "\n"},
		{Path: "/etc/hosts", Text: "127.0.0.1 localhost " + nodeName + "\n"},
		// The test bed makes an image of it, and runs a containerd of its own.
		{Path: "/usr/bin/busybox", Link: insideTools + "/busybox"},
		{Path: "/etc/systemd/system/containerd.service", Link: "/dev/null"},
	}
}

// fill makes the payload.
func (o Options) fill(ctx context.Context, box *tools.Box, dir string) error {
	bin := filepath.Join(dir, filepath.Base(insideTools))
	if err := os.MkdirAll(bin, 0o755); err != nil {
		return err
	}
	programs, err := filepath.Glob(filepath.Join(o.Machine, "kubelot*"))
	if err != nil {
		return err
	}
	if len(programs) == 0 {
		return fmt.Errorf("%s has no executables of kubelot (tools/build.sh)", o.Machine)
	}
	for _, name := range insidePrograms {
		programs = append(programs, box.Path(name))
	}
	// Links stay links.
	cp := append([]string{"--archive", "--target-directory=" + bin, "/bin/busybox"}, programs...)
	if out, err := exec.CommandContext(ctx, "cp", cp...).CombinedOutput(); err != nil {
		return fmt.Errorf("copy programs: %w: %s", err, out)
	}
	all, err := (&cluster.Cluster{Tools: box}).E2EImages(ctx)
	if err != nil {
		return err
	}
	return errors.Join(images.Archive(filepath.Join(bin, images.SuiteArchive), all...),
		os.WriteFile(filepath.Join(dir, "apart.sh"), apart, 0o755))
}

// launchInside starts this program in the machine, as a service: it outlives a connection.
func (o Options) launchInside(ctx context.Context, m *machine.Machine) error {
	script := filepath.Join(insideOut, string(o.Agent), "run.sh")
	if err := m.Write(ctx, script, 0o755, []byte(o.script())); err != nil {
		return err
	}
	// With Delegate= systemd keeps all controllers of cgroups on.
	_, err := m.Run(ctx, "systemd-run --quiet --unit=conformance -p Delegate=yes -p TasksMax=infinity "+script)
	return err
}

// script runs this program in the machine.
func (o Options) script() string {
	args := []string{
		"--suite=numa", "--agent=" + string(o.Agent), "--out=" + insideOut, "--focus=" + o.Scope.Focus,
		"--repeat=" + strconv.Itoa(o.Repeat), "--timeout=" + o.Timeout.String(),
	}
	if o.Scope.Quick {
		args = append(args, "--quick")
	}
	command := machine.Payload + "/apart.sh " + insideTools + "/conformance"
	for _, arg := range args {
		command += " '" + strings.ReplaceAll(arg, "'", `'\''`) + "'"
	}
	return "#!/bin/sh\nexport HOME=/root " + tools.ProgramsEnv + "=" + insideTools + "\nexec " + command + " >" +
		filepath.Join(insideOut, string(o.Agent), insideLog) + " 2>&1\n"
}

// follow waits for the end of the program in the machine and passes on what it tells.
func (o Options) follow(ctx context.Context, m *machine.Machine) error {
	limit := time.Duration(o.Repeat)*o.Timeout + aroundSuite
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("the suite still runs in the machine after %v", limit))
	defer cancel()
	log := filepath.Join(insideOut, string(o.Agent), insideLog)
	told, silent := 0, 0
	for {
		pause.For(ctx, lookInside)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		out, err := ask(ctx, m, fmt.Sprintf("systemctl is-active conformance; tail -c +%d %s", told+1, log))
		if err != nil {
			if silent++; silent == mostSilent {
				return err
			}
			continue
		}
		silent = 0
		state, text, _ := strings.Cut(out, "\n")
		lines := text[:strings.LastIndexByte(text, '\n')+1]
		told += len(lines)
		for line := range strings.Lines(lines) {
			if strings.HasPrefix(line, string(o.Agent)+": ") {
				fmt.Fprint(o.Log, line)
			}
		}
		if state == "inactive" || state == "failed" {
			return nil
		}
	}
}

// ask runs a command that takes no time.
func ask(ctx context.Context, m *machine.Machine, command string) (string, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, answerInside, fmt.Errorf("waited %v", answerInside))
	defer cancel()
	return m.Run(ctx, command)
}

// takeOut copies the agent's directory and the logs of the machine's test bed into the output directory. The results
// alone are left out: those there may have more specs.
func (o Options) takeOut(ctx context.Context, m *machine.Machine) (conformance.Results, error) {
	const file = "results.json"
	agent := string(o.Agent)
	archive, err := m.Run(ctx, fmt.Sprintf("cd %s && mkdir -p bed/logs && tar -cz --exclude=%s %s bed/logs", insideOut,
		file, agent))
	if err != nil {
		return nil, err
	}
	unpack := exec.CommandContext(ctx, "tar", "-xz", "-C", o.Out)
	unpack.Stdin = strings.NewReader(archive)
	if out, err := unpack.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("unpack the results of %s: %w: %s", agent, err, out)
	}
	// The program there may fail by what it thinks of its results. Only without any it has failed to run the suite.
	data, err := m.Run(ctx, "cat "+filepath.Join(insideOut, agent, file))
	if err != nil {
		log := filepath.Join(o.Out, agent, insideLog)
		return nil, fmt.Errorf("the machine has no results: %w; end of %s:\n%s", err, log, proc.Tail(log, 3000))
	}
	results := conformance.Results{}
	if err := json.Unmarshal([]byte(data), &results); err != nil {
		return nil, fmt.Errorf("results of %s: %w", agent, err)
	}
	return results, nil
}
