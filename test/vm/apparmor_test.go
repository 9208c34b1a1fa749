package vm

import (
	"strings"
	"testing"
)

// A container has the AppArmor profile that its pod names, and the runtime's if it names none.
func TestAppArmor(t *testing.T) {
	notQuick(t)
	profile := "/etc/apparmor.d/kubelot-test"
	if err := node.Machine.Write(t.Context(), profile, 0o644, []byte(`
profile kubelot-test flags=(attach_disconnected,mediate_deleted) {
  file,
  network,
  capability,
  signal,
  deny /tmp/** w,
}
`)); err != nil {
		t.Fatal(err)
	}
	in(t, "apparmor_parser -r "+profile)
	undo(t, "apparmor_parser -R "+profile+" && rm "+profile)
	ns := bed.Namespace(t)
	pod := func(name, setting string) string {
		return strings.ReplaceAll(`
---
apiVersion: v1
kind: Pod
metadata: {name: `+name+`}
spec:
  terminationGracePeriodSeconds: 1
  containers: [{name: app, image: "busybox:1.36", command: $FOREVER`+setting+`}]
`, "$FOREVER", forever)
	}
	of := func(setting string) string { return ", securityContext: {appArmorProfile: {" + setting + "}}" }
	ns.Apply(pod("local", of("type: Localhost, localhostProfile: kubelot-test")) + pod("plain", "") +
		pod("runtime", of("type: RuntimeDefault")) + pod("free", of("type: Unconfined")) +
		pod("absent", of("type: Localhost, localhostProfile: no-such-profile")))
	for name, want := range map[string]string{
		"local": "kubelot-test (enforce)", "plain": "cri-containerd.apparmor.d (enforce)",
		"runtime": "cri-containerd.apparmor.d (enforce)", "free": "unconfined",
	} {
		ns.Running(name)
		if got := inPod(t, ns, name, "cat /proc/1/attr/current"); strings.TrimSpace(got) != want {
			t.Errorf("pod %s has the profile %q, want %s", name, got, want)
		}
		out := inPod(t, ns, name, "touch /tmp/x 2>/dev/null && echo yes || echo no")
		if allowed := out == "yes\n"; allowed == (name == "local") {
			t.Errorf("pod %s may write to /tmp: %q", name, out)
		}
	}
	if s := ns.Waiting("absent", "app", "CreateContainerError"); !strings.Contains(s.Message, "no-such-profile") {
		t.Errorf("message for a profile that isn't loaded: %q", s.Message)
	}
}
