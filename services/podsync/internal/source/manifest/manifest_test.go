package manifest

import (
	"bytes"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

var here = Origin{File: "/etc/kubernetes/manifests/web.yaml", NodeName: "node-1"}

const web = `
apiVersion: v1
kind: Pod
metadata: {name: web}
spec:
  containers:
  - {name: web, image: nginx, ports: [{containerPort: 80}], volumeMounts: [{name: tmp, mountPath: /tmp}]}
  volumes: [{name: tmp}]
`

func TestStaticPod(t *testing.T) {
	pod, warnings, err := Pod([]byte(web), here)
	if err != nil || len(warnings) > 0 {
		t.Fatal(err, warnings)
	}
	// The UID was computed by Kubernetes 1.36.3 itself (test/differential/staticpod compares thousands).
	const uid = "6d1d8438d81fc878f65d286d03695635"
	if string(pod.UID) != uid || pod.Annotations[AnnotationHash] != uid {
		t.Errorf("UID is %s, annotation %s", pod.UID, pod.Annotations[AnnotationHash])
	}
	if pod.Name != "web-node-1" || pod.Namespace != "default" || pod.Spec.NodeName != "node-1" {
		t.Errorf("the pod is %s/%s on %s", pod.Namespace, pod.Name, pod.Spec.NodeName)
	}
	if len(pod.Spec.Tolerations) != 1 || pod.Spec.Tolerations[0].Effect != corev1.TaintEffectNoExecute {
		t.Errorf("tolerations are %v", pod.Spec.Tolerations)
	}
	c := pod.Spec.Containers[0]
	if c.ImagePullPolicy != corev1.PullAlways || c.Ports[0].Protocol != corev1.ProtocolTCP ||
		pod.Spec.Volumes[0].EmptyDir == nil {
		t.Errorf("defaults are missing: %+v", pod.Spec)
	}
}

func TestIdentityDependsOnPlaceAndContent(t *testing.T) {
	uid := func(data string, from Origin) string {
		pod, _, err := Pod([]byte(data), from)
		if err != nil {
			t.Fatal(err)
		}
		return string(pod.UID)
	}
	base := uid(web, here)
	if again := uid(web+"# a comment\n", here); again != base {
		t.Error("a comment changed the UID")
	}
	for name, other := range map[string]string{
		"file":  uid(web, Origin{File: "/elsewhere", NodeName: "node-1"}),
		"node":  uid(web, Origin{File: here.File, NodeName: "node-2"}),
		"url":   uid(web, Origin{URL: here.File, NodeName: "node-1"}),
		"image": uid(strings.Replace(web, "nginx", "nginx:1", 1), here),
	} {
		if other == base {
			t.Errorf("another %s gave the same UID", name)
		}
	}
	if got := uid(strings.Replace(web, "name: web}", "name: web, uid: mine}", 1), here); got != "mine" {
		t.Errorf("the manifest's own UID became %s", got)
	}
}

func TestSloppyManifestsRunWithWarnings(t *testing.T) {
	for name, c := range map[string]struct{ data, warning string }{
		"unknown field":    {strings.Replace(web, "spec:", "spec:\n  replicas: 3", 1), `unknown field "spec.replicas"`},
		"doubled key":      {strings.Replace(web, "spec:", "spec:\n  hostname: a\n  hostname: b", 1), "hostname"},
		"second document":  {web + "---\nkind: ConfigMap\n", "2 YAML documents"},
		"leading dashes":   {"---\n# comment\n---" + web, ""},
		"trailing dashes":  {web + "---\n", ""},
		"system priority":  {strings.Replace(web, "spec:", "spec:\n  priorityClassName: system-node-critical", 1), ""},
		"negative grace":   {strings.Replace(web, "spec:", "spec:\n  terminationGracePeriodSeconds: -5", 1), ""},
		"windows newlines": {strings.ReplaceAll(web, "\n", "\r\n"), ""},
	} {
		pod, warnings, err := Pod([]byte(c.data), here)
		all := strings.Join(warnings, "; ")
		if err != nil || pod == nil || (c.warning == "") != (all == "") || !strings.Contains(all, c.warning) {
			t.Errorf("%s: warnings %q, error %v", name, all, err)
		}
	}
}

func TestBadManifests(t *testing.T) {
	replace := func(old, with string) string { return strings.Replace(web, old, with, 1) }
	for name, c := range map[string]struct{ data, want string }{
		"empty":          {"", "it is empty"},
		"only comments":  {"# nothing\n---\n", "it is empty"},
		"garbage":        {"\x00\xff{{", "not YAML"},
		"truncated":      {web[:60], "can't be decoded"},
		"no name":        {replace("name: web}", "labels: {}}"), "metadata.name is missing"},
		"wrong kind":     {replace("kind: Pod", "kind: Deployment"), `kind is "Deployment"`},
		"wrong version":  {replace("v1", "v2"), `apiVersion is "v2"`},
		"list in a file": {"apiVersion: v1\nkind: PodList\nitems: []", `kind is "PodList"`},
		"wrong type":     {replace("[{containerPort: 80}]", "eighty"), "can't be decoded"},
		"bad quantity":   {replace("image: nginx", "image: nginx, resources: {limits: {cpu: lots}}"), "can't be decoded"},
		"bad name":       {replace("name: web}", "name: Web_1}"), "metadata.name"},
		"evil uid":       {replace("name: web}", "name: web, uid: ../../etc}"), "metadata.uid: Invalid"},
		"no containers":  {"apiVersion: v1\nkind: Pod\nmetadata: {name: x}\nspec: {}", "spec.containers: Required"},
		"no image":       {replace("image: nginx", "image: ''"), "spec.containers[0].image: Required"},
		"port":           {replace("80", "80000"), "spec.containers[0].ports[0].containerPort"},
		"unknown volume": {replace("[{name: tmp}]", "[]"), `spec.containers[0].volumeMounts[0].name: Not found: "tmp"`},
		"same container": {
			replace("  volumes", "  - {name: web, image: a}\n  volumes"),
			"spec.containers[1].name: Duplicate",
		},
		"restart policy": {replace("spec:", "spec:\n  restartPolicy: Sometimes"), "spec.restartPolicy"},
		"request > limit": {
			replace("image: nginx", "image: nginx, resources: {limits: {cpu: 1}, requests: {cpu: 2}}"),
			"must not exceed the limit",
		},
		"two handlers": {replace("image: nginx",
			"image: nginx, livenessProbe: {exec: {command: [a]}, tcpSocket: {port: 1}}"), "livenessProbe: Forbidden"},
		"secret volume":   {replace("{name: tmp}", "{name: tmp, secret: {secretName: s}}"), "secrets (via secret volumes)"},
		"service account": {replace("spec:", "spec:\n  serviceAccountName: s"), "serviceaccounts"},
		"configmap env":   {replace("image: nginx", "image: nginx, envFrom: [{configMapRef: {name: c}}]"), "configmaps"},
		"claim": {
			replace("{name: tmp}", "{name: tmp, persistentVolumeClaim: {claimName: c}}"),
			"persistentvolumeclaims",
		},
		"ephemeral": {
			replace("spec:", "spec:\n  ephemeralContainers: [{name: e, image: i}]"),
			"spec.ephemeralContainers",
		},
		"host path escape": {replace("{name: tmp}", "{name: tmp, hostPath: {path: /a/../b}}"), "must not contain '..'"},
		"oversized":        {web + strings.Repeat("#", MaxBytes), "larger than 10 MiB"},
	} {
		pod, _, err := Pod([]byte(c.data), here)
		if err == nil || pod != nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), here.File) {
			t.Errorf("%s: got %v, want %q", name, err, c.want)
		}
	}
}

func TestPodList(t *testing.T) {
	from := Origin{URL: "http://manifests", NodeName: "node-1"}
	list := `{"apiVersion":"v1","kind":"PodList","items":[
		{"metadata":{"name":"a"},"spec":{"containers":[{"name":"a","image":"a:1"}]}},
		{"metadata":{"name":"b"},"spec":{"containers":[{"name":"b","image":"b:1"}]}}]}`
	pods, _, err := Pods([]byte(list), from)
	if err != nil || len(pods) != 2 || pods[0].Name != "a-node-1" || pods[1].Name != "b-node-1" ||
		pods[0].UID == pods[1].UID {
		t.Fatalf("got %v, %v", pods, err)
	}
	if len(pods[0].Spec.Tolerations) != 0 {
		t.Error("a pod from a URL got the toleration of files")
	}
	_, _, err = Pods([]byte(strings.Replace(list, "b:1", "", 1)), from)
	if err == nil || !strings.Contains(err.Error(), "items[1] (b)") {
		t.Errorf("a bad pod in the list gave %v", err)
	}
	if pods, _, err := Pods([]byte(web), from); err != nil || len(pods) != 1 {
		t.Errorf("a single pod gave %v, %v", pods, err)
	}
}

func FuzzPod(f *testing.F) {
	f.Add([]byte(web))
	f.Add([]byte("---\n---\n"))
	f.Add(
		[]byte(
			`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a"},"spec":{"resources":{"limits":{"cpu":"1"}},"containers":[null]}}`))
	f.Add([]byte(`{"apiVersion":"v1","kind":"PodList","items":[null]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		pod, _, err := Pod(data, here)
		if (pod == nil) == (err == nil) {
			t.Fatalf("pod %v, error %v", pod, err)
		}
		again, _, _ := Pod(bytes.Clone(data), here)
		if pod != nil && pod.UID != again.UID {
			t.Fatal("the same bytes gave two UIDs")
		}
		Pods(data, here)
	})
}
