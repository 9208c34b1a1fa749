package crash

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"kubelot.dev/test/e2e/kit"
	"kubelot.dev/test/testbed/cri"
)

// asked is a container that fails its liveness probe when it is asked to.
const asked = `
apiVersion: v1
kind: Pod
metadata: {name: asked}
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - name: main
    image: docker.io/library/busybox:1.36
    command: [sh, -c, 'trap "exit 0" TERM; while :; do sleep 1000 & wait; done']
    livenessProbe: {exec: {command: [sh, -c, "! test -e /fail"]}, timeoutSeconds: 60, periodSeconds: 1}
`

// TestRuntimeUpgrade replaces Debian's containerd 1.6 by containerd 2 under running pods, while others come and go, as
// an administrator does who installs another package. What ran goes on in the same containers; the node shows the new
// version, and the pods of before are probed, restarted and deleted by it like those that came after.
func TestRuntimeUpgrade(t *testing.T) {
	t.Setenv(cri.RuntimeEnv, cri.DebianContainerd)
	own := kit.StartWithoutNode(t)
	if err := own.StartNode(t.Context(), "kubelot"); err != nil {
		t.Fatal(err)
	}
	runs := func(version string) func() error {
		return func() error {
			if is := own.KubeNode(t).Status.NodeInfo.ContainerRuntimeVersion; !strings.HasPrefix(is, version) {
				return fmt.Errorf("the node's runtime is %s, not %s", is, version)
			}
			return nil
		}
	}
	kit.Eventually(t, "the version of Debian", runs("containerd://1.6."))
	ns := own.Namespace(t)
	ns.Apply(settings)
	watchFlips(t, ns)
	before := newHerd(t, ns, "before", 3)
	before.running(3)
	going := newHerd(t, ns, "going", 3)
	going.running(3)
	ns.Apply(probedOften)
	probed := kit.Status(ns.Running("probed"), "main")
	unwatched := own.Namespace(t)
	unwatched.Apply(asked)
	asks := unwatched.Running("asked")

	going.delete()
	h := newHerd(t, ns, "meanwhile", 3)
	if err := own.CRI.Upgrade(t.Context()); err != nil {
		t.Fatal(err)
	}
	going.gone()
	h.cutStarts = startsAtOnce
	h.running(3)
	kit.Eventually(t, "the new version", runs("containerd://2."))
	if is := kit.Status(ns.Running("probed"), "main"); is.ContainerID != probed.ContainerID || is.RestartCount != 0 {
		t.Errorf("the pod's container was %+v and is %+v", probed, is)
	}
	unchanged(t, ns, before)

	unwatched.Exec(asks, "main", "touch /fail")
	unwatched.Restarted(asks, "main", 1)
	before.delete()
	before.gone()
	h.delete()
	h.gone()
	nodeReady(t, own, corev1.ConditionTrue)
}
