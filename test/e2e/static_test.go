package e2e

import (
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"kubelot.dev/test/e2e/kit"
)

// manifest writes a file into the manifest directory as a careful editor does, by renaming; it goes with the test.
func manifest(t *testing.T, name, content string) string {
	t.Helper()
	path := filepath.Join(bed.Node.ManifestDir, name)
	draft := filepath.Join(bed.Node.ManifestDir, "."+name)
	if err := os.WriteFile(draft, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(draft, path); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.Remove(path) })
	return path
}

func inNamespace(ns *kit.Namespace, manifest string) string {
	return strings.Replace(manifest, "metadata:\n", "metadata:\n  namespace: "+ns.Name+"\n", 1)
}

const staticSpec = "  containers: [{name: app, image: \"busybox:1.36\", command: $FOREVER}]\n"

// A static pod and its mirror.
func TestStaticPod(t *testing.T) {
	t.Parallel()
	ns := bed.Namespace(t)
	path := manifest(t, ns.Name+".yaml", inNamespace(ns, pod("static", staticSpec)))
	mirror := ns.Running("static-" + kit.NodeName)
	for _, key := range []string{"kubernetes.io/config.mirror", "kubernetes.io/config.hash", "kubernetes.io/config.seen"} {
		if mirror.Annotations[key] == "" {
			t.Errorf("the mirror pod has no annotation %s: %v", key, mirror.Annotations)
		}
	}
	if mirror.Annotations["kubernetes.io/config.source"] != "file" ||
		mirror.Annotations["kubernetes.io/config.mirror"] != mirror.Annotations["kubernetes.io/config.hash"] {
		t.Errorf("annotations of the mirror pod: %v", mirror.Annotations)
	}
	if len(mirror.OwnerReferences) != 1 || mirror.OwnerReferences[0].Kind != "Node" ||
		mirror.OwnerReferences[0].Name != kit.NodeName {
		t.Errorf("owner of the mirror pod: %+v; want the node", mirror.OwnerReferences)
	}
	container := kit.Status(mirror, "app").ContainerID

	ns.Delete(mirror.Name, 0)
	again := ns.Wait(mirror.Name, "recreated", func(p *corev1.Pod) bool { return p.UID != mirror.UID && kit.Ready(p) })
	if kit.Status(again, "app").ContainerID != container {
		t.Error("the container was replaced with the mirror pod")
	}

	manifest(t, ns.Name+".yaml",
		inNamespace(ns, pod("static", strings.Replace(staticSpec, "name: app", "name: changed", 1))))
	changed := ns.Wait(mirror.Name, "changed", func(p *corev1.Pod) bool {
		return kit.Status(p, "changed") != nil && kit.Ready(p)
	})
	if changed.UID == again.UID {
		t.Error("the mirror pod of a changed manifest is the old one")
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	ns.Gone(changed)
	kit.Eventually(t, "the static pods' logs to go", func() error {
		left, _ := filepath.Glob(filepath.Join(bed.Node.PodLogs, ns.Name+"_*"))
		if len(left) > 0 {
			return &os.PathError{Op: "see gone", Path: left[0], Err: os.ErrExist}
		}
		return nil
	})
}

// Bad manifests: one clear error for each, and the others go on.
func TestBadManifests(t *testing.T) {
	t.Parallel()
	ns := bed.Namespace(t)
	name := func(kind string) string { return ns.Name + "-" + kind + ".yaml" }
	manifest(t, name("malformed"), "kind: Pod\nmetadata: {name: [")
	manifest(t, name("unknown"), inNamespace(ns, pod("unknown", strings.Replace(staticSpec, "command", "comand", 1))))
	manifest(t, name("invalid"), inNamespace(ns, pod("In_valid", staticSpec)))
	manifest(t, name("huge"), inNamespace(ns, pod("huge", staticSpec))+strings.Repeat("# filling\n", 2<<20))
	manifest(t, name("secret"),
		inNamespace(ns, pod("secret", staticSpec+"  volumes: [{name: s, secret: {secretName: s}}]\n")))
	manifest(t, name("binary"), "\x00\x01\x02\xff")
	manifest(t, name("empty"), "")
	manifest(t, name("a-twin"), inNamespace(ns, pod("twin", staticSpec)))
	manifest(t, name("b-twin"), inNamespace(ns, pod("twin", strings.Replace(staticSpec, "name: app", "name: other", 1))))
	manifest(t, name("good"), inNamespace(ns, pod("good", staticSpec)))
	ns.Running("good-" + kit.NodeName)
	twin := ns.Running("twin-" + kit.NodeName)
	if kit.Status(twin, "app") == nil {
		t.Errorf("of two manifests with one name the second won: %+v", twin.Status.ContainerStatuses)
	}
	for _, kind := range []string{"malformed", "invalid", "huge", "secret", "binary", "b-twin"} {
		kit.Follow(t, "an Event on the node about the manifest "+kind, eventsOfNode, func(e *corev1.Event) bool {
			return strings.Contains(e.Message, name(kind))
		})
	}
	// A person who asks for a pod of one of them learns which file is wrong, and of all from the node's answer.
	kit.Eventually(t, "the broken manifest in kubelot why", func() error {
		file := filepath.Join(bed.Node.ManifestDir, name("malformed"))
		return errors.Join(bed.WhySays(t.Context(), ns.Name+"-malformed", "the manifest "+file+" can't be used: "),
			bed.WhySays(t.Context(), "node", "the manifest "+file+" can't be used: "))
	})
	kit.Eventually(t, "all broken manifests in the node's answer", func() error {
		var errs []error
		for kind, why := range map[string]string{
			"invalid": "Invalid value", "huge": "", "secret": "static pods may not reference secrets", "binary": "", "empty": "",
		} {
			file := filepath.Join(bed.Node.ManifestDir, name(kind))
			errs = append(errs, bed.WhySays(t.Context(), "node", "the manifest "+file+" can't be used: ", why))
		}
		return errors.Join(errs...)
	})
	manifest(t, name("malformed"), inNamespace(ns, pod("malformed", staticSpec)))
	ns.Running("malformed-" + kit.NodeName)
	kit.Follow(t, "an Event about the corrected manifest", eventsOfNode, func(e *corev1.Event) bool {
		return e.Reason == "ManifestUsable" && strings.Contains(e.Message, name("malformed"))
	})
	events, err := bed.Client.CoreV1().Events(metav1.NamespaceDefault).List(t.Context(),
		metav1.ListOptions{FieldSelector: "reason=InvalidManifest"})
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range events.Items {
		if strings.Contains(e.Message, ns.Name) {
			t.Logf("%d times: %s", e.Count, e.Message)
			if e.Count > 3 {
				t.Errorf("told %d times: %s", e.Count, e.Message)
			}
		}
	}
}

// A manifest that is written slowly, and one that changes all the time.
func TestChangingManifest(t *testing.T) {
	t.Parallel()
	ns := bed.Namespace(t)
	path := filepath.Join(bed.Node.ManifestDir, ns.Name+"-slow.yaml")
	t.Cleanup(func() { _ = os.Remove(path) })
	file, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	content := inNamespace(ns, pod("slow", staticSpec))
	// Two pieces: of ten Events on the node's manifests, those of other tests too, the last ones are made into one.
	half := len(content) / 2
	for _, piece := range []string{content[:half], content[half:]} {
		if _, err := file.WriteString(piece); err != nil {
			t.Fatal(err)
		}
	}
	ns.Running("slow-" + kit.NodeName)
	// Between the changes the pod gets more or less far: to its admission, its mirror pod, its sandbox.
	for gap, last := range map[time.Duration]string{
		0: "busy", 20 * time.Millisecond: "busy-20ms",
		150 * time.Millisecond: "busy-150ms", 400 * time.Millisecond: "busy-400ms",
	} {
		file := ns.Name + "-" + last + ".yaml"
		for range 20 {
			manifest(t, file, inNamespace(ns, pod(last, strings.Replace(staticSpec, "name: app", "name: not-yet", 1))))
			time.Sleep(rand.N(gap + 1))
			manifest(t, file, inNamespace(ns, pod(last, staticSpec)))
			time.Sleep(rand.N(gap + 1))
		}
		p := ns.Wait(last+"-"+kit.NodeName, "the last form", func(p *corev1.Pod) bool {
			return kit.Ready(p) && kit.Status(p, "app") != nil
		})
		if got := len(p.Spec.Containers); got != 1 {
			t.Errorf("%d containers; want 1", got)
		}
	}
}
