package parity

import (
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"kubelot.dev/test/e2e/kit"
	"kubelot.dev/test/testbed/node"
)

// passing are pods that come and go: with an init container, without their image, too large for the node, and asked for
// another size.
const passing = `apiVersion: v1
kind: Pod
metadata: {name: short}
spec:
  restartPolicy: Never
  initContainers: [{name: first, image: "busybox:1.36", command: ["true"]}]
  containers: [{name: app, image: "busybox:1.36", command: ["false"]}]
---
apiVersion: v1
kind: Pod
metadata: {name: blank}
spec:
  terminationGracePeriodSeconds: 0
  containers: [{name: app, image: "nowhere.example/none:1", imagePullPolicy: Never}]
---
apiVersion: v1
kind: Pod
metadata: {name: large}
spec:
  nodeName: testbed
  containers: [{name: app, image: "busybox:1.36", resources: {requests: {cpu: "1000"}}}]
---
apiVersion: v1
kind: Pod
metadata: {name: growing}
spec:
  terminationGracePeriodSeconds: 0
  containers: [{name: app, image: "busybox:1.36", command: [sleep, "1000000"], resources: {requests: {cpu: 10m}}}]
`

// failing are pods that fail, each at another step. What counts errors is shown once there was one, so each agent must
// have them all: one that only the kubelet had by chance would look like a metric that kubelot lacks.
const failing = `apiVersion: v1
kind: Pod
metadata: {name: mistaken}
spec:
  terminationGracePeriodSeconds: 0
  containers: [{name: app, image: "busybox:1.36", command: [/no/such/command]}]
---
apiVersion: v1
kind: Pod
metadata: {name: boxless}
spec:
  terminationGracePeriodSeconds: 0
  runtimeClassName: none
  containers: [{name: app, image: "busybox:1.36"}]
---
apiVersion: v1
kind: Pod
metadata: {name: mapless}
spec:
  terminationGracePeriodSeconds: 0
  containers: [{name: app, image: "busybox:1.36", volumeMounts: [{name: map, mountPath: /map}]}]
  volumes: [{name: map, configMap: {name: none}}]
`

// lacking are the families of the kubelet's /metrics that kubelot has not, each with its reason, and others those that
// kubelot has under a name or with labels of its own. An entry that nothing differs by any more fails the test.
var lacking = map[string]string{
	`aggregator_.*|apiextensions_.*|apiserver_(cel|envelope|kube_aggregator|storage|validation|webhooks|audit)_.*|node_collector_.*|cardinality_.*`: "of the API server and the controllers, whose packages the test's kubelet shares its executable with",
	`kubernetes_build_info|kubernetes_feature_enabled`: "kubelot is no build of Kubernetes and has no feature gates; " +
		"kubelot_build_info tells its version",
	`go_.*|process_virtual_memory_max_bytes`: "the kubelet has all that Go's runtime measures; kubelot what " +
		"the Prometheus client has by default, for each daemon",
	`rest_client_.*|workqueue_.*`: "of client-go's packages that kubelot doesn't use",

	`dra_.*`: "shown once a pod has claims of devices",
	`plugin_manager_total_plugins`: "one series for each socket: kubelot has the registered plugins in the topic " +
		"plugin.registered",
	`kubelet_imagemanager_inmemory_.*`: "records of pulls are read from the disk, so no " +
		"cache can be full",
	`kubelet_pod_watch_events_dropped_total`: "shown where the Pods API is on",
	`kubelet_metrics_provider`: "neither cAdvisor nor the runtime provides the " +
		"figures: kubelot-stats does",
	`(reconstruct_volume|force_cleaned_failed_volume)_operations?_.*`: "nothing is reconstructed after a restart: what " +
		"is mounted is read from the kernel",
}

// atTimes are entries of lacking that the kubelet itself shows only at times: it may set this one before it registers
// it, and loses it then.
var atTimes = map[string]bool{`kubelet_metrics_provider`: true}

// TestSameMetrics compares the families of /metrics, with their types and labels, after the same pods under either
// agent.
func TestSameMetrics(t *testing.T) {
	bed := kit.StartWithoutNode(t)
	class := &nodev1.RuntimeClass{ObjectMeta: metav1.ObjectMeta{Name: "none"}, Handler: "none"}
	if _, err := bed.Client.NodeV1().RuntimeClasses().Create(t.Context(), class, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	var want, got map[string]string
	if !t.Run("kubelet", func(t *testing.T) {
		want = metricsOf(t, bed, node.Kubelet, func(shown map[string]string) bool {
			excused := map[string]bool{}
			for name := range shown {
				excused[excuse(name)] = true
			}
			delete(excused, "")
			return len(excused) == len(lacking)
		})
	}) || !t.Run("kubelot", func(t *testing.T) {
		got = metricsOf(t, bed, node.Kubelot, func(shown map[string]string) bool {
			for name, kind := range want {
				if shown[name] != kind && excuse(name) == "" {
					return false
				}
			}
			return true
		})
	}) {
		return
	}
	used := map[string]bool{}
	for _, name := range slices.Sorted(maps.Keys(want)) {
		entry := excuse(name)
		kind, there := got[name]
		switch {
		case there && kind == want[name]:
		case entry != "":
			used[entry] = true
		case there:
			t.Errorf("- %s %s\n+ %s %s", name, want[name], name, kind)
		default:
			t.Errorf("- %s %s", name, want[name])
		}
	}
	for entry, reason := range lacking {
		if !used[entry] && !atTimes[entry] {
			t.Errorf("the kubelet has no metrics %s that kubelot lacks (any more): %s", entry, reason)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(got)) {
		if want[name] == "" {
			t.Logf("+ %s %s", name, got[name])
		}
	}
	t.Logf("%d of the kubelet's, %d of kubelot's", len(want), len(got))
}

// excuse is the entry of lacking that the family is of; empty if there is none.
func excuse(name string) string {
	for entry := range lacking {
		if regexp.MustCompile(`^(` + entry + `)\{`).MatchString(name) {
			return entry
		}
	}
	return ""
}

// metricsOf has pods come and go under the agent, and returns the families that it shows then with their types: as soon
// as they are enough, or what there is in the end.
func metricsOf(t *testing.T, bed *kit.Bed, agent node.Agent, enough func(map[string]string) bool) map[string]string {
	t.Helper()
	if err := bed.StartNode(t.Context(), agent); err != nil {
		t.Fatal(err)
	}
	ns := bed.Namespace(t)
	ns.Apply(user + "---\n" + passing + "---\n" + failing)
	stored := store(t, bed, ns)
	ns.Running("user")
	ns.Running("growing")
	ns.Phase("short", corev1.PodFailed)
	ns.Phase("large", corev1.PodFailed)
	ns.Kubectl("patch", "pod", "growing", "--subresource=resize", "-p",
		`{"spec":{"containers":[{"name":"app","resources":{"requests":{"cpu":"20m"}}}]}}`)
	ns.Delete("short", 0)
	if agent == node.Kubelet {
		time.Sleep(itsClocks)
	}
	var data []byte
	var err error
	until(func() bool {
		if _, err = bed.Client.CoreV1().RESTClient().Get().AbsPath("/api/v1/nodes/" + kit.NodeName +
			"/proxy/stats/summary").DoRaw(t.Context()); err != nil {
			return false
		}
		data, err = bed.Client.CoreV1().RESTClient().Get().AbsPath("/api/v1/nodes/" + kit.NodeName +
			"/proxy/metrics").DoRaw(t.Context())
		shown := families(data)
		return err == nil && shown[ofClaims] != "" && enough(shown)
	})
	if err != nil {
		t.Fatalf("%v: %s", err, data)
	}
	dump(t, string(agent)+"-metrics", map[string]string{"/metrics": string(data)})
	for _, name := range []string{"user", "blank", "large", "growing", "mistaken", "boxless", "mapless"} {
		ns.Delete(name, 0)
	}
	ns.Delete(stored.Name, 1)
	ns.Gone(stored)
	if err := bed.Node.Remove(); err != nil {
		t.Fatal(err)
	}
	if err := bed.Client.CoreV1().Nodes().Delete(t.Context(), kit.NodeName, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	return families(data)
}

// ofClaims is a family with the figures of claims, which an agent reads once a minute or so.
const ofClaims = "kubelet_volume_stats_capacity_bytes{namespace,persistentvolumeclaim}"

// store has a pod that has a volume of a CSI driver.
func store(t *testing.T, bed *kit.Bed, ns *kit.Namespace) *corev1.Pod {
	t.Helper()
	no := false
	driver := bed.CSIDriver(t, "measured.csi.test", storagev1.CSIDriverSpec{AttachRequired: &no}, "--no-attach")
	driver.Start()
	ns.Volume(corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{
		Driver: driver.Name, VolumeHandle: driver.Provision("measured"), FSType: "ext4",
	}}, ns.For("data", corev1.PersistentVolumeFilesystem))
	ns.Apply(ns.Claim("data", "") + `apiVersion: v1
kind: Pod
metadata: {name: stored}
spec:
` + app(forever+", volumeMounts: [{name: data, mountPath: /data}]") + `
  volumes: [{name: data, persistentVolumeClaim: {claimName: data}}]
`)
	return ns.Running("stored")
}

// families are the families, with the names of their labels, and their types. Which daemon a series is from isn't
// compared.
func families(data []byte) map[string]string {
	found, kind, family := map[string]string{}, "", ""
	for line := range strings.Lines(string(data)) {
		fields := strings.Fields(line)
		switch {
		case len(fields) == 4 && fields[0] == "#" && fields[1] == "TYPE":
			family, kind = fields[2], fields[3]
		case strings.HasPrefix(line, "#") || len(fields) == 0:
		default:
			var labels []string
			for _, p := range pair.FindAllString(line, -1) {
				if name, _, _ := strings.Cut(p, "="); name != "le" && name != "quantile" && name != "daemon" {
					labels = append(labels, name)
				}
			}
			slices.Sort(labels)
			found[family+"{"+strings.Join(labels, ",")+"}"] = kind
		}
	}
	return found
}
