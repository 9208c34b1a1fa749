package vm

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"kubelot.dev/test/e2e/kit"
	"kubelot.dev/test/vm/guest"
)

// TestNode is the quick part: what happens in the life of a node, with the same pods all along. A part that fails ends
// it, since the next ones may not find the node as they need it.
func TestNode(t *testing.T) {
	w := newWorkload(t)
	for _, part := range []struct {
		name string
		run  func(*testing.T, *workload)
	}{
		{"PodsRun", podsRun},
		{"Sleeps", sleeps},
		// Meanwhile the resource daemon sleeps again.
		{"Hardened", hardened},
		{"SleepsAgain", sleepsAgain},
		{"UnitsRestart", unitsRestart},
		{"UpgradeEach", upgradeEach},
		{"StopLeavesPods", stopLeavesPods},
		{"RemoveLeavesPods", removeLeavesPods},
		{"Reboot", reboot},
	} {
		if !t.Run(part.name, func(t *testing.T) { part.run(t, w.in(t)) }) {
			t.Fatal("the parts that follow were not run")
		}
	}
}

// podsRun shows that pods run with systemd and cgroup v2, and go without a trace.
func podsRun(t *testing.T, w *workload) {
	if got := inPod(t, w.Namespace, "mounted", "cat /settings/colour /keys/password"); got != "blues3cret" {
		t.Errorf("the files of the volumes have %q", got)
	}
	if got := inPod(t, w.Namespace, "probed", "wget -qO- http://localhost:8080/"); got != "hello\n" {
		t.Errorf("the web server says %q", got)
	}
	limited := w.Running("limited")
	uid := strings.ReplaceAll(string(limited.UID), "-", "_")
	slice := "kubepods-burstable-pod" + uid + ".slice"
	group := "/sys/fs/cgroup/kubepods.slice/kubepods-burstable.slice/" + slice
	_, id, _ := strings.Cut(limited.Status.ContainerStatuses[0].ContainerID, "://")
	// The weight follows from 100m by the kubelet's rule. The last two are the container's, and systemd's view.
	got := in(t, fmt.Sprintf("cd %s && cat memory.max cpu.max cpu.weight cri-containerd-%s.scope/memory.max && "+
		"systemctl show -P MemoryMax %s", group, id, slice))
	if want := "67108864\n50000 100000\n4\n67108864\n67108864"; got != want {
		t.Errorf("the limits of the pod's cgroups are %q, want %q", got, want)
	}
	gone := works(t, w.Namespace)
	uid = string(gone.UID)
	eventually(t, "the deleted pod's traces to go", func(ctx context.Context) error {
		out, err := node.Machine.Run(ctx, fmt.Sprintf("(grep %[1]s /proc/self/mountinfo; ls -d /var/lib/kubelet/pods/%[1]s "+
			"/var/log/pods/*_%[1]s; find /sys/fs/cgroup -name '*%[2]s*') 2>/dev/null || true", uid,
			strings.ReplaceAll(uid, "-", "_")))
		if err == nil && out != "" {
			err = fmt.Errorf("there are\n%s", out)
		}
		return err
	})
}

// sleeper is the unit of the daemon that sleeps while nothing needs it.
const sleeper = "kubelot-resource.service"

// becomes waits until the process of the sleeper's unit sleeps or is awake.
func becomes(t *testing.T, unit guest.Unit, what string, asleep bool) {
	t.Helper()
	eventually(t, what, func(ctx context.Context) error {
		program, err := node.Machine.Run(ctx, fmt.Sprintf("readlink /proc/%s/exe", unit.MainPID))
		if err == nil && strings.Contains(program, "kubelot-doze") != asleep {
			err = fmt.Errorf("it runs %s", program)
		}
		return err
	})
}

// sameProcess checks that the sleeper's unit has had the same process all along.
func sameProcess(t *testing.T, unit guest.Unit) {
	t.Helper()
	if now := crew(t)[sleeper]; now.MainPID != unit.MainPID {
		t.Errorf("process %s has become %s", unit.MainPID, now.MainPID)
	}
}

// sleeps shows that the resource daemon, which nothing here needs, sleeps within the sandbox of its unit, that its
// alarm is for all daemons, and that systemd wakes it.
func sleeps(t *testing.T, _ *workload) {
	unit := crew(t)[sleeper]
	becomes(t, unit, "the sleep of kubelot-resource", true)
	if got := in(t, "stat -c %U:%G:%a /run/kubelot/wake/resource.sock"); got != "root:kubelot:660" {
		t.Errorf("its alarm is %s", got)
	}
	status := in(t, "systemctl show -P StatusText "+sleeper)
	if !strings.Contains(status, "asleep: nothing on this node needs") {
		t.Errorf("systemd says %q of it", status)
	}
	in(t, "systemctl reload "+sleeper)
	becomes(t, unit, "its awakening by a reload", false)
	sameProcess(t, unit)
}

// sleepsAgain shows that it sleeps another time after that, and that another daemon wakes it.
func sleepsAgain(t *testing.T, _ *workload) {
	unit := crew(t)[sleeper]
	becomes(t, unit, "another sleep of kubelot-resource", true)
	in(t, "systemctl restart kubelot-bus")
	becomes(t, unit, "its awakening by the bus", false)
	sameProcess(t, unit)
}

// unitsRestart has systemd restart each daemon, and kills each: no other daemon and no pod notices, and the crew does
// its work afterwards. The quick part only kills them: systemd starts them again the same way, and a daemon that is
// restarted has more time to prepare for it.
func unitsRestart(t *testing.T, w *workload) {
	units := crew(t)
	if want := guest.DaemonUnits(); !slices.Equal(slices.Sorted(maps.Keys(units)), want) {
		t.Fatalf("kubelot.target wants %v, not %v", slices.Sorted(maps.Keys(units)), want)
	}
	s := watchSteady(t, w, watchNode)
	names := slices.Sorted(maps.Keys(units))
	hows := []string{"restart ", "kill --kill-whom=main --signal=KILL "}
	if testing.Short() {
		hows = hows[1:]
	}
	for _, how := range hows {
		for _, name := range names {
			if _, err := node.Systemctl(t.Context(), how+name); err != nil {
				t.Fatal(err)
			}
			units = alone(t, units, name)
		}
		s.check(t)
	}
	works(t, w.Namespace)
	s.check(t)
}

// upgradeEach moves one daemon after the other to another version, in the quick part podsync alone: its unit alone is
// restarted, and runs that version.
func upgradeEach(t *testing.T, w *workload) {
	units := crew(t)
	names := slices.Sorted(maps.Keys(units))
	moves := names
	if testing.Short() {
		moves = []string{"kubelot-podsync.service"}
	}
	s := watchSteady(t, w, watchNode)
	before := tasks(t)
	for i, name := range moves {
		daemon := daemonOf(name)
		version, err := node.Upgrade(t.Context(), daemon)
		if err != nil {
			t.Fatal(err)
		}
		units = alone(t, units, name)
		for _, other := range names {
			got := in(t, program(other)+" --version")
			if moved := slices.Contains(moves[:i+1], other); strings.HasSuffix(got, " "+version) != moved || version == "" {
				t.Errorf("with %s of version %q, %s says %q", daemon, version, other, got)
			}
		}
		if name != sleeper { // that may sleep, in a program of its own
			in(t, fmt.Sprintf("[ /proc/%s/exe -ef %s ]", units[name].MainPID, program(name)))
		}
	}
	works(t, w.Namespace)
	if after := tasks(t); after != before {
		t.Errorf("processes of containers:\n%s\nbefore the upgrade:\n%s", after, before)
	}
	s.check(t)
}

// daemonOf is the name of a unit's daemon: podsync.
func daemonOf(unit string) string {
	return strings.TrimSuffix(strings.TrimPrefix(unit, "kubelot-"), ".service")
}

// program is the executable of a unit.
func program(unit string) string { return "/usr/lib/kubelot/bin/kubelot-" + daemonOf(unit) }

// stopLeavesPods stops all units together: pods go on, and the units that start again take the pods over.
func stopLeavesPods(t *testing.T, w *workload) {
	s := watchSteady(t, w)
	before := tasks(t)
	if _, err := node.Systemctl(t.Context(), "stop kubelot.target"); err != nil {
		t.Fatal(err)
	}
	noneRuns(t)
	if after := tasks(t); after != before {
		t.Errorf("processes of containers:\n%s\nbefore the stop:\n%s", after, before)
	}
	start(t)
	worksAgain(t, w)
	s.check(t)
}

// removeLeavesPods removes kubelot: the pods stay, and nothing of kubelot but its state. Installed again it takes the
// pods over.
func removeLeavesPods(t *testing.T, w *workload) {
	s := watchSteady(t, w)
	before := tasks(t)
	if err := node.Uninstall(t.Context()); err != nil {
		t.Fatal(err)
	}
	noneRuns(t)
	left := in(t, "find /usr /lib /etc -name '*kubelot*' ! -path '/etc/kubernetes/*' ! -path /etc/default/kubelot; "+
		"systemctl list-units --no-legend --state=active 'kubelot-*'")
	if left != "" {
		t.Errorf("left of kubelot:\n%s", left)
	}
	if after := tasks(t); after != before {
		t.Errorf("processes of containers:\n%s\nbefore kubelot was removed:\n%s", after, before)
	}
	if err := node.Install(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := node.Join(t.Context()); err != nil {
		t.Fatal(err)
	}
	worksAgain(t, w)
	s.check(t)
}

// worksAgain is works, but in the quick part: there the reboot at its end shows that the crew does all of its work, and
// the parts before show only that the pods stay.
func worksAgain(t *testing.T, w *workload) {
	t.Helper()
	if !testing.Short() {
		works(t, w.Namespace)
	}
}

// reboot ends all containers. kubelot, which starts at boot, brings the pods back as they were wanted.
func reboot(t *testing.T, w *workload) {
	before := map[string]corev1.Pod{}
	for _, p := range w.list(t) {
		before[p.Name] = p
	}
	if err := node.Reboot(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.runAgain(before)
	for _, p := range w.list(t) {
		if p.UID != before[p.Name].UID && p.Name != w.static {
			t.Errorf("pod %s has UID %s, before the reboot %s", p.Name, p.UID, before[p.Name].UID)
		}
	}
	works(t, w.Namespace)
}

// crew are the units of all daemons.
func crew(t *testing.T) map[string]guest.Unit {
	t.Helper()
	names, err := node.Units(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	units, err := node.Show(t.Context(), names...)
	if err != nil {
		t.Fatal(err)
	}
	return units
}

// alone waits until the unit runs as another process than before. All others must be the processes that they were.
func alone(t *testing.T, before map[string]guest.Unit, name string) map[string]guest.Unit {
	t.Helper()
	var now map[string]guest.Unit
	eventually(t, name+" to run as another process", func(ctx context.Context) (err error) {
		now, err = node.Show(ctx, slices.Collect(maps.Keys(before))...)
		if u := now[name]; err == nil && (!u.Running() || u.MainPID == before[name].MainPID) {
			err = fmt.Errorf("it is %s, process %s", u.ActiveState, u.MainPID)
		}
		return err
	})
	for other, u := range now {
		if other != name && (u.MainPID != before[other].MainPID || !u.Running()) {
			t.Errorf("%s was process %s and is %s, process %s, when only %s was to be another one", other,
				before[other].MainPID, u.ActiveState, u.MainPID, name)
		}
	}
	return now
}

// runAgain waits until the pods are Ready with other containers than before.
func (w *workload) runAgain(before map[string]corev1.Pod) {
	w.t.Helper()
	for name, old := range before {
		kit.Follow(w.t, "pod "+name+" to run again", watchPods(old.Namespace, name), func(p *corev1.Pod) bool {
			return kit.Ready(p) && p.Status.ContainerStatuses[0].ContainerID != old.Status.ContainerStatuses[0].ContainerID
		})
	}
}
