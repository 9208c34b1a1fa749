package parity

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"kubelot.dev/test/csidriver"
	"kubelot.dev/test/e2e/kit"
	"kubelot.dev/test/testbed/node"
	"kubelot.dev/test/testbed/tools"
)

const (
	csiAttached = "attached.csi.test" // its volumes must be attached
	csiPlain    = "plain.csi.test"    // its volumes needn't be
	// csiPods are how many pods of a kind are timed.
	csiPods = 10
)

// TestCSIAsTheKubelet has two CSI drivers serve pods of each agent. What the drivers are asked, the CSINode, the Node,
// the pods' statuses and the Events are those of the kubelet, and a pod that waits for an attachment is ready in at most
// half the time.
func TestCSIAsTheKubelet(t *testing.T) {
	bed := kit.StartWithoutNode(t)
	turns := map[node.Agent]*csiTurn{}
	for _, agent := range []node.Agent{node.Kubelet, node.Kubelot} {
		t.Run(string(agent), func(t *testing.T) { turns[agent] = playCSI(t, bed, agent) })
	}
	if t.Failed() {
		return
	}
	kubelet, kubelot := turns[node.Kubelet], turns[node.Kubelot]
	dump(t, "kubelet", kubelet.told)
	dump(t, "kubelot", kubelot.told)
	for _, part := range slices.Sorted(maps.Keys(kubelet.told)) {
		t.Run(part, func(t *testing.T) {
			lines := slices.DeleteFunc(diff(kubelet.told[part], kubelot.told[part]), func(line string) bool {
				return slices.ContainsFunc(csiIntended, func(d difference) bool { return d.covers(part, line) })
			})
			if len(lines) > 0 {
				t.Errorf("- kubelet, + kubelot\n%s", strings.Join(lines, "\n"))
			}
		})
	}
	for _, kind := range []string{csiAttached, csiPlain} {
		a, b := median(kubelet.ready[kind]), median(kubelot.ready[kind])
		t.Logf("%s: from a pod's creation to Ready, median of %d: kubelet %v, kubelot %v", kind, csiPods, a, b)
		if kind == csiAttached && b > a/2 {
			t.Errorf("a pod whose volume must be attached is ready after %v, with the kubelet after %v", b, a)
		}
	}
}

// csiIntended are the differences that are meant to be.
var csiIntended = []difference{}

// csiTurn is one agent's turn.
type csiTurn struct {
	agent   node.Agent
	bed     *kit.Bed
	ns      *kit.Namespace
	drivers map[string]*kit.Driver
	// volumes are the persistent volumes' names, for which a constant stands in what is told.
	volumes []string
	handles []string

	told  map[string]string // by part
	ready map[string][]time.Duration
}

func playCSI(t *testing.T, bed *kit.Bed, agent node.Agent) *csiTurn {
	if err := bed.StartNode(t.Context(), agent); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		nodes := bed.Client.CoreV1().Nodes()
		if err := errors.Join(bed.Node.Remove(), nodes.Delete(context.Background(), kit.NodeName,
			metav1.DeleteOptions{})); err != nil {
			t.Error(err)
		}
	})
	c := &csiTurn{agent: agent, bed: bed, told: map[string]string{}, ready: map[string][]time.Duration{}}
	c.start(t)
	c.ns = bed.Namespace(t)
	c.story(t)
	for _, kind := range []string{csiAttached, csiPlain} {
		c.time(t, kind)
	}
	return c
}

// start starts the drivers, and waits until the node has them.
func (c *csiTurn) start(t *testing.T) {
	t.Helper()
	yes, no, file := true, false, storagev1.FileFSGroupPolicy
	modes := []storagev1.VolumeLifecycleMode{storagev1.VolumeLifecyclePersistent, storagev1.VolumeLifecycleEphemeral}
	c.drivers = map[string]*kit.Driver{
		csiAttached: c.bed.CSIDriver(t, csiAttached, storagev1.CSIDriverSpec{PodInfoOnMount: &yes, FSGroupPolicy: &file},
			"--topology="+csiAttached+"/zone=a", "--max-volumes=50"),
		csiPlain: c.bed.CSIDriver(t, csiPlain, storagev1.CSIDriverSpec{
			AttachRequired: &no, PodInfoOnMount: &yes, VolumeLifecycleModes: modes,
			TokenRequests: []storagev1.TokenRequest{{Audience: "vault"}},
		}, "--no-attach"),
	}
	for _, name := range []string{csiAttached, csiPlain} {
		c.drivers[name].Start()
		c.drivers[name].Registered(1, time.Now())
	}
	c.drivers[csiAttached].Sidecars(tools.Attacher)
	kit.Eventually(t, "the drivers in the CSINode", func() error {
		n, err := c.bed.Client.StorageV1().CSINodes().Get(t.Context(), kit.NodeName, metav1.GetOptions{})
		if err == nil && len(n.Spec.Drivers) < 2 {
			err = fmt.Errorf("it has %+v", n.Spec.Drivers)
		}
		return err
	})
}

// claim makes a volume of the driver, and a claim of it.
func (c *csiTurn) claim(driver, name string, mode corev1.PersistentVolumeMode) {
	handle := c.drivers[driver].Provision(c.ns.Name + name)
	pv := c.ns.Volume(corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{
		Driver: driver, VolumeHandle: handle, FSType: map[bool]string{true: "ext4"}[mode == corev1.PersistentVolumeFilesystem],
		VolumeAttributes: map[string]string{"colour": "green"},
	}}, c.ns.For(name, mode))
	c.volumes, c.handles = append(c.volumes, pv), append(c.handles, handle)
	c.ns.Apply(c.ns.Claim(name, ", volumeMode: "+string(mode)))
}

// csiStories are the pods that are compared, by name.
var csiStories = map[string]string{
	"attached": `
  securityContext: {fsGroup: 4321}
  containers:
  - {name: app, image: "busybox:1.36", $FOREVER, volumeMounts: [{name: data, mountPath: /data}]}
  volumes: [{name: data, persistentVolumeClaim: {claimName: attached}}]
`,
	"disk": `
  containers:
  - {name: app, image: "busybox:1.36", $FOREVER, volumeDevices: [{name: disk, devicePath: /dev/xvda}]}
  volumes: [{name: disk, persistentVolumeClaim: {claimName: disk}}]
`,
	"plain": `
  securityContext: {fsGroup: 4321}
  containers:
  - {name: app, image: "busybox:1.36", $FOREVER, volumeMounts: [{name: data, mountPath: /data, readOnly: true}]}
  volumes: [{name: data, persistentVolumeClaim: {claimName: plain}}]
`,
	"inline": `
  containers:
  - {name: app, image: "busybox:1.36", $FOREVER, volumeMounts: [{name: data, mountPath: /data}]}
  volumes:
  - {name: data, csi: {driver: plain.csi.test, volumeAttributes: {colour: blue}, nodePublishSecretRef: {name: key}}}
`,
}

// story plays a pod of each kind, from its creation until nothing of it is left.
func (c *csiTurn) story(t *testing.T) {
	t.Helper()
	c.claim(csiAttached, "attached", corev1.PersistentVolumeFilesystem)
	c.claim(csiAttached, "disk", corev1.PersistentVolumeBlock)
	c.claim(csiPlain, "plain", corev1.PersistentVolumeFilesystem)
	c.ns.Apply("apiVersion: v1\nkind: Secret\nmetadata: {name: key}\nstringData: {password: s3cret}\n")
	command := strings.TrimSpace(forever)
	for name, spec := range csiStories {
		c.ns.Apply("apiVersion: v1\nkind: Pod\nmetadata: {name: " + name + "}\nspec:" +
			strings.ReplaceAll(spec, "$FOREVER", command))
	}
	pods := map[string]*corev1.Pod{}
	for name := range csiStories {
		pods[name] = c.ns.Running(name)
		c.ns.Event(name, "Started", "")
	}
	c.tell("node", c.node(t))
	for name, p := range pods {
		c.tell(name, "status:\n"+(&stage{agent: c.agent}).status(t, p))
		c.ns.Delete(name, 1)
	}
	for name, p := range pods {
		c.ns.Gone(p)
		c.tell(name, "events:\n"+c.events(t, name))
	}
	kit.Eventually(t, "nothing is in use", func() error {
		if s := c.bed.KubeNode(t).Status; len(s.VolumesInUse)+len(s.VolumesAttached) > 0 {
			return fmt.Errorf("in use %v, attached %v", s.VolumesInUse, s.VolumesAttached)
		}
		left, err := filepath.Glob(filepath.Join(c.bed.Node.RootDir, "plugins/kubernetes.io/csi/*.csi.test/*"))
		if len(left) > 0 {
			err = errors.Join(err, fmt.Errorf("staged are %q", left))
		}
		return err
	})
	for name, d := range c.drivers {
		c.tell("calls of "+name, c.calls(t, d))
	}
}

func (c *csiTurn) tell(part, text string) { c.told[part] += c.anonymous(text) }

// node is what CSINode and Node say of the drivers and their volumes.
func (c *csiTurn) node(t *testing.T) string {
	t.Helper()
	csi, err := c.bed.Client.StorageV1().CSINodes().Get(t.Context(), kit.NodeName, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	slices.SortFunc(csi.Spec.Drivers, func(a, b storagev1.CSINodeDriver) int { return strings.Compare(a.Name, b.Name) })
	n := c.bed.KubeNode(t)
	slices.Sort(n.Status.VolumesInUse)
	slices.SortFunc(n.Status.VolumesAttached, func(a, b corev1.AttachedVolume) int {
		return strings.Compare(string(a.Name), string(b.Name))
	})
	labels := maps.Clone(n.Labels)
	maps.DeleteFunc(labels, func(key, _ string) bool { return !strings.Contains(key, "csi") })
	out, err := yaml.Marshal(map[string]any{
		"csinode": csi.Spec, "annotations": csi.Annotations, "owners": csi.OwnerReferences, "labels": labels,
		"id": n.Annotations["csi.volume.kubernetes.io/nodeid"], "inUse": n.Status.VolumesInUse,
		"attached": n.Status.VolumesAttached,
	})
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

// events are the Events about the pod, each once.
func (c *csiTurn) events(t *testing.T, name string) string {
	t.Helper()
	list, err := c.bed.Client.CoreV1().Events(c.ns.Name).List(t.Context(),
		metav1.ListOptions{FieldSelector: "involvedObject.name=" + name})
	if err != nil {
		t.Fatal(err)
	}
	told := map[string]bool{}
	for _, e := range list.Items {
		if e.Source.Component == "kubelet" {
			told[fmt.Sprintf("%s %s %s: %s\n", e.Type, e.Reason, e.InvolvedObject.FieldPath, e.Message)] = true
		}
	}
	return strings.Join(slices.Sorted(maps.Keys(told)), "")
}

// calls are what the driver was asked by the node agent and how that ended, by volume and in order.
func (c *csiTurn) calls(t *testing.T, d *kit.Driver) string {
	t.Helper()
	calls, err := csidriver.ReadCalls(d.State)
	if err != nil {
		t.Fatal(err)
	}
	lines, at := map[string][]string{}, map[int64]string{}
	for _, call := range calls {
		if !regexp.MustCompile("^Node.*(Stage|Publish|Unpublish|Unstage|Expand)").MatchString(call.Method) {
			continue
		}
		if call.End {
			lines[at[call.ID]] = append(lines[at[call.ID]], call.Method+" ends "+call.Code+"\n")
			continue
		}
		var request map[string]any
		if err := json.Unmarshal(call.Request, &request); err != nil {
			t.Fatal(err)
		}
		at[call.ID] = fmt.Sprint(request["volumeId"])
		text, err := yaml.Marshal(request)
		if err != nil {
			t.Fatal(err)
		}
		lines[at[call.ID]] = append(lines[at[call.ID]], call.Method+"\n"+string(text))
	}
	var all []string
	for volume, list := range lines {
		name := "a pod's own"
		if i := slices.Index(c.handles, volume); i >= 0 {
			name = fmt.Sprint("volume ", i)
		}
		// A call without a certain end is repeated.
		all = append(all, name+":\n"+strings.Join(slices.Compact(list), ""))
	}
	slices.Sort(all)
	return strings.Join(all, "")
}

var csiAnonyms = []struct {
	pattern *regexp.Regexp
	name    string
}{
	{regexp.MustCompile(`eyJ[\w-]+\.[\w-]+\.[\w-]+`), "TOKEN"},
	{regexp.MustCompile(`csi-[0-9a-f]{64}`), "OWN"},
}

// anonymous leaves out what differs from run to run.
func (c *csiTurn) anonymous(text string) string {
	for i, volume := range c.volumes {
		text = strings.ReplaceAll(text, volume, fmt.Sprint("PV", i))
		text = strings.ReplaceAll(text, c.handles[i], fmt.Sprint("HANDLE", i))
	}
	for _, a := range csiAnonyms {
		text = a.pattern.ReplaceAllString(text, a.name)
	}
	return anonymous(text, c.ns.Name, c.bed.Bed.Dir)
}

// time measures how long pods take from their creation until they are ready, one after the other, each with a volume of
// its own.
func (c *csiTurn) time(t *testing.T, driver string) {
	t.Helper()
	kind, _, _ := strings.Cut(driver, ".")
	var pods []*corev1.Pod
	for i := range csiPods {
		name := fmt.Sprintf("timed-%s-%d", kind, i)
		c.claim(driver, name, corev1.PersistentVolumeFilesystem)
		kit.Eventually(t, "the claim is bound", func() error {
			claim, err := c.bed.Client.CoreV1().PersistentVolumeClaims(c.ns.Name).Get(t.Context(), name, metav1.GetOptions{})
			if err == nil && claim.Status.Phase != corev1.ClaimBound {
				err = fmt.Errorf("it is %s", claim.Status.Phase)
			}
			return err
		})
		spec := strings.ReplaceAll(csiStories["attached"], "claimName: attached", "claimName: "+name)
		began := time.Now()
		c.ns.Apply("apiVersion: v1\nkind: Pod\nmetadata: {name: " + name + "}\nspec:" +
			strings.ReplaceAll(spec, "$FOREVER", strings.TrimSpace(forever)))
		pods = append(pods, c.ns.Running(name))
		c.ready[driver] = append(c.ready[driver], time.Since(began))
	}
	for _, p := range pods {
		c.ns.Delete(p.Name, 1)
	}
	for _, p := range pods {
		c.ns.Gone(p)
	}
}

func median(list []time.Duration) time.Duration {
	sorted := slices.Sorted(slices.Values(list))
	return sorted[len(sorted)/2].Round(time.Millisecond)
}
