package resource

import (
	"errors"
	"fmt"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"kubelot.dev/test/e2e/kit"
)

const claimed = `apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: {name: toy}
spec:
  spec:
    devices:
      requests: [{name: one, exactly: {deviceClassName: $DRIVER}}]
`

const sharedClaim = `apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: toy}
spec:
  devices:
    requests: [{name: one, exactly: {deviceClassName: $DRIVER}}]
`

const claimingPod = `
  containers:
  - name: app
    image: busybox:1.36
    command: $FOREVER
    resources: {claims: [{name: toy}]}
  resourceClaims: [{name: toy, resourceClaimTemplateName: toy}]
`

// A pod gets the device that it claims, from a driver that comes later and fails at first; the driver is asked once,
// also when the daemon was killed, and again when the pod has ended.
func TestClaims(t *testing.T) {
	t.Parallel()
	driver := bed.DRADriver(t, "dra.test", "toy-0", "toy-1")
	ns := bed.Namespace(t)
	ns.Apply(strings.ReplaceAll(claimed, "$DRIVER", driver.Name) + "---\n" + pod("claims", claimingPod))
	ns.Event("claims", "FailedPrepareDynamicResources", "DRA driver "+driver.Name+" is not registered")
	ns.Says("claims", "the pod can't start yet: the driver "+driver.Name+" of a device that it claims isn't registered")
	driver.Fail(errors.New("the toy is broken"))
	stop := driver.Serve()
	t.Cleanup(func() { stop() })
	ns.Event("claims", "FailedPrepareDynamicResources", "the toy is broken")
	ns.Says("claims", "the driver "+driver.Name+" can't prepare its claim ", ": the toy is broken")
	driver.Fail(nil)
	p := ns.Running("claims")
	if toy := ns.Exec(p, "app", "echo $TOY"); toy != "toy-0" && toy != "toy-1" {
		t.Errorf("the container has %q", toy)
	}
	resources := ns.PodResources("claims")
	if d := resources.GetContainers()[0].GetDynamicResources(); len(d) != 1 || len(d[0].GetClaimResources()) != 1 ||
		d[0].GetClaimResources()[0].GetDriverName() != driver.Name {
		t.Errorf("PodResources has %v", resources)
	}

	asked := len(driver.Calls())
	killResourceDaemon(t)
	bed.KillContainer(t, p, "app")
	p = ns.Restarted(p, "app", 1)
	if calls := driver.Calls(); len(calls) != asked {
		t.Errorf("the driver was asked again: %v", calls[asked:])
	}
	claim := *p.Status.ResourceClaimStatuses[0].ResourceClaimName
	// A claim that can't be taken back keeps the pod.
	driver.Fail(errors.New("the toy is stuck"))
	ns.Delete("claims", 1)
	ns.Says("claims", "the pod isn't gone, because its claims of devices aren't given back: the driver "+driver.Name+
		" can't take back its claim "+claim+": the toy is stuck")
	driver.Fail(nil)
	ns.Gone(p)
	if calls := driver.Calls(); !slices.Contains(calls, "unprepare "+ns.Name+"/"+claim) {
		t.Errorf("the driver was asked %v", calls)
	}
	claimGone(t, ns, claim)
}

// claimGone waits until the control plane has deleted the claim.
func claimGone(t *testing.T, ns *kit.Namespace, claim string) {
	t.Helper()
	kit.Eventually(t, "the claim's end", func() error {
		_, err := bed.Client.ResourceV1().ResourceClaims(ns.Name).Get(t.Context(), claim, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return fmt.Errorf("it is there: %w", err)
	})
}

// The control plane takes back the claims of a pod in a terminal phase, and may give their devices to another pod. So
// the driver has to be done with them before the phase says so.
func TestClaimsAreGivenBackBeforeThePhaseIsTerminal(t *testing.T) {
	t.Parallel()
	driver := bed.DRADriver(t, "order.test", "toy-0")
	t.Cleanup(driver.Serve())
	ns := bed.Namespace(t)
	asked, goOn := make(chan struct{}), make(chan struct{})
	tell := sync.OnceFunc(func() { close(asked) })
	driver.OnCall(func(call string) {
		if call == "unprepare" {
			tell()
			<-goOn
		}
	})
	once := strings.Replace(claimingPod, "command: $FOREVER", "command: ['true']", 1) + "  restartPolicy: Never\n"
	ns.Apply(strings.ReplaceAll(claimed, "$DRIVER", driver.Name) + "---\n" + pod("claims", once))
	await(t, "the driver to be asked to take back the claim", asked)
	// What the node writes of the pod's end without waiting for the driver comes with this at the latest.
	p := ns.Wait("claims", "its container's end", func(p *corev1.Pod) bool {
		s := kit.Status(p, "app")
		return s != nil && s.State.Terminated != nil
	})
	if p.Status.Phase != corev1.PodRunning && p.Status.Phase != corev1.PodPending {
		t.Errorf("its phase is %s, and the driver has not unprepared its claim", p.Status.Phase)
	}
	close(goOn)
	ns.Phase("claims", corev1.PodSucceeded)
}

// Two pods that come together share a claim. Its device is prepared once, for both, and given back when the last of
// them has gone.
func TestPodsShareAClaim(t *testing.T) {
	t.Parallel()
	driver := bed.DRADriver(t, "shared.test", "toy-0", "toy-1")
	t.Cleanup(driver.Serve())
	ns := bed.Namespace(t)
	undisturbed(t) // a daemon that dies while it asks has to ask again
	spec := strings.ReplaceAll(claimingPod, "resourceClaimTemplateName", "resourceClaimName")
	ns.Apply(strings.ReplaceAll(sharedClaim, "$DRIVER", driver.Name) + "---\n" + pod("first", spec) + "---\n" +
		pod("second", spec))
	first, second := ns.Running("first"), ns.Running("second")
	toy := ns.Exec(first, "app", "echo $TOY")
	if toy != "toy-0" && toy != "toy-1" {
		t.Errorf("the first container has %q", toy)
	}
	ns.Equal(second, "app", "echo $TOY", toy)
	prepared := []string{"prepare " + ns.Name + "/toy"}
	ns.Delete("first", 1)
	ns.Gone(first)
	if calls := driver.Calls(); !slices.Equal(calls, prepared) {
		t.Errorf("while the second pod runs the driver has been asked %v, want %v", calls, prepared)
	}
	if s := kit.Status(ns.Running("second"), "app"); s.RestartCount != 0 {
		t.Errorf("the second pod: %+v", s)
	}
	ns.Delete("second", 1)
	ns.Gone(second)
	if calls, want := driver.Calls(), append(prepared, "unprepare "+ns.Name+"/toy"); !slices.Equal(calls, want) {
		t.Errorf("the driver was asked %v, want %v", calls, want)
	}
}

// A driver that only speaks v1beta1.DRAPlugin prepares the claim of a pod, whose container gets the device. It takes
// the claim back when the pod has ended.
func TestDriverOfV1beta1(t *testing.T) {
	t.Parallel()
	driver := bed.DRADriver(t, "beta.test", "toy-0")
	driver.Beta = true
	t.Cleanup(driver.Serve())
	ns := bed.Namespace(t)
	ns.Apply(strings.ReplaceAll(claimed, "$DRIVER", driver.Name) + "---\n" + pod("claims", claimingPod))
	p := ns.Running("claims")
	ns.Equal(p, "app", "echo $TOY", "toy-0")
	claim := ns.Name + "/" + *p.Status.ResourceClaimStatuses[0].ResourceClaimName
	showsDevices(t, ns, "claims",
		fmt.Sprintf("app %s %s/%s/toy-0 %[2]s/toy=toy-0", claim, driver.Name, kit.NodeName))
	ns.Delete("claims", 1)
	ns.Gone(p)
	// The tests that run beside this one kill the daemon, so the driver may be asked more than once.
	calls := driver.Calls()
	if calls[0] != "prepare "+claim || calls[len(calls)-1] != "unprepare "+claim {
		t.Errorf("the driver was asked %v", calls)
	}
}

// A driver is removed for good while a pod has its device. The pod stays, the command line shows for what, and gives up
// on the driver when it is told to.
func TestDriverThatIsGoneForGood(t *testing.T) {
	t.Parallel()
	driver := bed.DRADriver(t, "gone.test", "toy-0")
	stop := sync.OnceFunc(driver.Serve())
	t.Cleanup(stop)
	ns := bed.Namespace(t)
	ns.Apply(strings.ReplaceAll(claimed, "$DRIVER", driver.Name) + "---\n" + pod("claims", claimingPod))
	p := ns.Running("claims")
	claim := ns.Name + "/" + *p.Status.ResourceClaimStatuses[0].ResourceClaimName
	// The tests that run beside this one kill the daemon, so a command is repeated until it succeeds, or fails as it must,
	// with the text.
	command := func(succeeds bool, want string, args ...string) {
		t.Helper()
		args = append(args, "--run-dir="+bed.Bed.Path("run"))
		kit.Eventually(t, "kubelot "+strings.Join(args, " "), func() error {
			out, err := kit.Output(exec.CommandContext(t.Context(), bed.Program("kubelot"), args...))
			if succeeds != (err == nil) || !regexp.MustCompile(want).MatchString(out) {
				return fmt.Errorf("%w, it says %s", err, out)
			}
			return nil
		})
	}
	command(false, "delete the pod first", "claims", "forget", claim)
	stop()
	ns.Delete("claims", 1)
	ns.Says("claims", "the driver "+driver.Name+" is gone from this node, and only it can take back what it has prepared",
		"kubelot claims says how to give up on it")
	ns.Event("claims", "FailedUnprepareDynamicResources", "DRA driver "+driver.Name+" is not registered: the pod stays "+
		"until its ResourceClaims are unprepared")
	command(true, `(?m)^`+claim+` +`+ns.Name+`/claims \(ended\) +`+driver.Name+` \(prepared, gone\)$`, "claims")
	command(true, "no longer waits for "+driver.Name, "claims", "forget", claim)
	ns.Gone(p)
}
