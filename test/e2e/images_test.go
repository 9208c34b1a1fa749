package e2e

import (
	"encoding/base64"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"kubelot.dev/test/e2e/kit"
	"kubelot.dev/test/testbed/images"
)

// push puts a busybox of its own into the registry and returns the reference to pull it by.
func push(t *testing.T, name string) string {
	t.Helper()
	return pushTo(t, bed, name)
}

func pushTo(t *testing.T, b *kit.Bed, name string) string {
	t.Helper()
	img, err := images.Variant(b.Busybox, "docker.io/"+name+":1", name)
	if err != nil {
		t.Fatal(err)
	}
	ref, err := b.Registry.Push(t.Context(), img)
	if err != nil {
		t.Fatal(err)
	}
	return ref
}

func imagePod(name, image, policy string) string {
	return pod(name, fmt.Sprintf("  containers: [{name: app, image: %q, imagePullPolicy: %s, command: "+
		"$FOREVER}]\n", image, policy))
}

// The pull policies, and the Events that tell of pulls.
func TestPullPolicies(t *testing.T) {
	t.Parallel()
	ns := bed.Namespace(t)
	ref := push(t, "policies/app")
	ns.Apply(imagePod("never", ref, "Never"))
	waiting := ns.Waiting("never", "app", "ErrImageNeverPull")
	if want := fmt.Sprintf("Container image %q is not present with pull policy of Never", ref); waiting.Message != want {
		t.Errorf("message %q; want %q", waiting.Message, want)
	}
	ns.Event("never", "ErrImageNeverPull", "is not present with pull policy of Never")
	ns.Apply(imagePod("missing", ref, "IfNotPresent"))
	ns.Running("missing")
	ns.Event("missing", "Pulling", fmt.Sprintf("Pulling image %q", ref))
	pulled := ns.Event("missing", "Pulled", fmt.Sprintf("Successfully pulled image %q in ", ref))
	if !strings.Contains(pulled.Message, "including waiting). Image size: ") {
		t.Errorf("message of Pulled: %s", pulled.Message)
	}
	ns.Apply(imagePod("present", ref, "IfNotPresent") + "\n---\n" + imagePod("always", ref, "Always"))
	ns.Running("present")
	ns.Event("present", "Pulled",
		fmt.Sprintf("Container image %q already present on machine and can be accessed by the pod", ref))
	ns.Running("always")
	ns.Event("always", "Pulled", fmt.Sprintf("Successfully pulled image %q in ", ref))
}

// pullFails waits until the pod's image couldn't be pulled, and returns why. ErrImagePull is there for seconds only,
// and what follows says the same.
func pullFails(ns *kit.Namespace, name string) (why string) {
	ns.Wait(name, "ErrImagePull or ImagePullBackOff", func(p *corev1.Pod) bool {
		s := kit.Status(p, "app")
		if s == nil || s.State.Waiting == nil || s.State.Waiting.Reason != "ErrImagePull" &&
			s.State.Waiting.Reason != "ImagePullBackOff" {
			return false
		}
		why = s.State.Waiting.Message
		return true
	})
	return why
}

// An image that isn't there: ErrImagePull, then a back-off.
func TestPullBackOff(t *testing.T) {
	t.Parallel()
	ns := bed.Namespace(t)
	ref := bed.Registry.Addr + "/no/such:1"
	ns.Apply(imagePod("absent", ref, "IfNotPresent"))
	if why := pullFails(ns, "absent"); !strings.Contains(why, "not found") && !strings.Contains(why, "name unknown") {
		t.Errorf("message of the failed pull: %s", why)
	}
	ns.Event("absent", "Failed", fmt.Sprintf("Failed to pull image %q: ", ref))
	ns.Event("absent", "Failed", "Error: ErrImagePull")
	if waiting := ns.Waiting("absent", "app", "ImagePullBackOff"); !strings.HasPrefix(waiting.Message,
		fmt.Sprintf("Back-off pulling image %q", ref)) {
		t.Errorf("message of ImagePullBackOff: %s", waiting.Message)
	}
	ns.Event("absent", "BackOff", fmt.Sprintf("Back-off pulling image %q", ref))
	p := ns.Phase("absent", corev1.PodPending)
	ns.Delete("absent", -1)
	ns.Gone(p)
}

// A name that can't be an image's.
func TestInvalidImageName(t *testing.T) {
	t.Parallel()
	ns := bed.Namespace(t)
	ns.Apply(imagePod("bad", "Not_An_Image", "IfNotPresent"))
	if waiting := ns.Waiting("bad", "app", "InvalidImageName"); !strings.Contains(waiting.Message, "Not_An_Image") {
		t.Errorf("message: %s", waiting.Message)
	}
}

// A registry with a password. It isn't parallel: the registry asks all its clients.
func TestPullSecret(t *testing.T) {
	ns := bed.Namespace(t)
	ref := push(t, "private/app")
	bed.Registry.Require("somebody", "pass:word")
	defer bed.Registry.Require("", "")
	secret := func(name, user string) string {
		auth := base64.StdEncoding.EncodeToString([]byte(user))
		config := fmt.Sprintf(`{"auths":{%q:{"auth":%q}}}`, bed.Registry.Addr, auth)
		return fmt.Sprintf("apiVersion: v1\nkind: Secret\nmetadata: {name: %s}\ntype: "+
			"kubernetes.io/dockerconfigjson\nstringData: {.dockerconfigjson: '%s'}\n---\n", name, config)
	}
	with := func(name, secret string) string {
		return imagePod(name, ref, "Always") + "  imagePullSecrets: [{name: " + secret + "}]\n"
	}
	ns.Apply(secret("right", "somebody:pass:word") + secret("wrong", "somebody:else"))
	ns.Apply(imagePod("without", ref, "Always") + "\n---\n" + with("wrong", "wrong") + "\n---\n" +
		with("absent", "absent"))
	for _, name := range []string{"without", "wrong", "absent"} {
		if why := pullFails(ns, name); !strings.Contains(why, "401") && !strings.Contains(why, "authorization") &&
			!strings.Contains(why, "unauthorized") {
			t.Errorf("message of pod %s: %s", name, why)
		}
	}
	ns.Event("absent", "FailedToRetrieveImagePullSecret", "Unable to retrieve some image pull secrets (absent); "+
		"attempting to pull the image may not succeed.")
	ns.Apply(with("right", "right"))
	ns.Running("right")
	// The image is there now, but not for those who can't show that they may use it.
	for _, name := range []string{"without", "wrong", "absent"} {
		p := ns.Wait(name, "seen", func(*corev1.Pod) bool { return true })
		if kit.Ready(p) {
			t.Errorf("pod %s runs without a right to its image", name)
		}
	}
}

// With serializeImagePulls one pull begins after the other.
func TestSerialPulls(t *testing.T) {
	t.Parallel()
	own, err := kit.Start(t.Context(), kit.Options{Registry: true, Config: "serializeImagePulls: true\n"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := own.Stop(); err != nil {
			t.Error(err)
		}
	})
	ns := own.Namespace(t)
	names := []string{"one", "two", "three"}
	var manifests []string
	for _, name := range names {
		manifests = append(manifests, imagePod(name, pushTo(t, own, "serial/"+name), "Always"))
	}
	own.Registry.Delay(300 * time.Millisecond)
	ns.Apply(strings.Join(manifests, "\n---\n"))
	for _, name := range names {
		message := ns.Event(name, "Pulled", "Successfully pulled image").Message
		if !regexp.MustCompile(`in \S+ \(\S+ including waiting\)`).MatchString(message) {
			t.Errorf("message of Pulled: %s", message)
		}
	}
	if turns := own.Registry.Turns(); len(turns) != len(names) {
		t.Errorf("%d images were asked for in the order %v: the pulls ran side by side", len(names), turns)
	}
}
