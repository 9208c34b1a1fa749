package e2e

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"kubelot.dev/test/e2e/kit"
)

const volumeObjects = `
apiVersion: v1
kind: ConfigMap
metadata: {name: settings}
data: {colour: blue, deep: below}
binaryData: {bytes: AAEC}
---
apiVersion: v1
kind: Secret
metadata: {name: keys}
stringData: {password: s3cret, user: admin}
---
`

// Volumes that the node fills.
func TestFilledVolumes(t *testing.T) {
	t.Parallel()
	ns := bed.Namespace(t)
	ns.Apply(volumeObjects + strings.Replace(pod("filled", `
  containers:
  - name: app
    image: busybox:1.36
    command: $FOREVER
    resources: {limits: {cpu: 500m}}
    volumeMounts:
    - {name: config, mountPath: /config}
    - {name: items, mountPath: /items}
    - {name: secret, mountPath: /secret, readOnly: true}
    - {name: fields, mountPath: /fields}
    - {name: all, mountPath: /all}
    - {name: absent, mountPath: /absent}
    - {name: config, mountPath: /one/colour, subPath: colour}
  volumes:
  - {name: config, configMap: {name: settings}}
  - {name: items, configMap: {name: settings, defaultMode: 0400, items: [{key: deep, path: a/b/c, mode: 0640}]}}
  - {name: secret, secret: {secretName: keys, defaultMode: 0400}}
  - {name: absent, configMap: {name: none, optional: true}}
  - name: fields
    downwardAPI:
      items:
      - {path: labels, fieldRef: {fieldPath: metadata.labels}}
      - {path: annotations, fieldRef: {fieldPath: metadata.annotations}}
      - {path: cpu, resourceFieldRef: {containerName: app, resource: limits.cpu, divisor: 1m}}
  - name: all
    projected:
      sources:
      - configMap: {name: settings, items: [{key: colour, path: c}]}
      - secret: {name: keys, items: [{key: user, path: s}]}
      - downwardAPI: {items: [{path: name, fieldRef: {fieldPath: metadata.name}}]}
      - serviceAccountToken: {path: token, audience: somebody, expirationSeconds: 3600}
`), "  name: filled\n", "  name: filled\n  labels: {team: blue}\n  annotations: {note: hello}\n", 1))
	p := ns.Running("filled")
	for command, want := range map[string]string{
		"cat /config/colour":                                          "blue",
		"od -An -tx1 /config/bytes | tr -d ' '":                       "000102",
		"ls /items":                                                   "a",
		"cat /items/a/b/c":                                            "below",
		"stat -L -c %a /items/a/b/c":                                  "640",
		"cat /secret/password":                                        "s3cret",
		"stat -L -c %a /secret/password":                              "400",
		"touch /secret/x 2>/dev/null || echo no":                      "no",
		"grep -o 'team=.*' /fields/labels":                            `team="blue"`,
		"grep -o 'note=.*' /fields/annotations":                       `note="hello"`,
		"cat /fields/cpu":                                             "500",
		"cat /all/c /all/s /all/name":                                 "blueadminfilled",
		"tr . ' ' < /all/token | wc -w":                               "3",
		"ls /absent | wc -l":                                          "0",
		"cat /one/colour":                                             "blue",
		"stat -f -c %T /secret":                                       "tmpfs",
		"cat /var/run/secrets/kubernetes.io/serviceaccount/namespace": ns.Name,
		"grep -c BEGIN /var/run/secrets/kubernetes.io/serviceaccount/ca.crt":           "1",
		"tr . ' ' < /var/run/secrets/kubernetes.io/serviceaccount/token | wc -w":       "3",
		"touch /var/run/secrets/kubernetes.io/serviceaccount/x 2>/dev/null || echo no": "no",
	} {
		ns.Equal(p, "app", command, want)
	}
}

// A change of a ConfigMap or a Secret is in the file at once, and whole.
func TestConfigMapChange(t *testing.T) {
	t.Parallel()
	ns := bed.Namespace(t)
	ns.Apply(volumeObjects + pod("watcher", `
  containers:
  - name: app
    image: busybox:1.36
    command: $FOREVER
    volumeMounts: [{name: config, mountPath: /config}, {name: secret, mountPath: /secret}, {name: config, mountPath: /fixed, subPath: colour}]
  volumes: [{name: config, configMap: {name: settings}}, {name: secret, secret: {secretName: keys}}]
`))
	p := ns.Running("watcher")
	file := filepath.Join(bed.Node.RootDir, "pods", string(p.UID), "volumes", "kubernetes.io~configmap",
		"config", "colour")
	var took []time.Duration
	for _, colour := range []string{"red", "yellow", "green"} {
		began := time.Now()
		if _, err := bed.Client.CoreV1().ConfigMaps(ns.Name).Patch(t.Context(), "settings", types.MergePatchType,
			[]byte(`{"data":{"colour":"`+colour+`","deep":null,"new":"n"}}`), metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
		kit.Eventually(t, "the ConfigMap's change in the file", func() error { return contains(file, colour) })
		took = append(took, time.Since(began))
	}
	t.Logf("the changes were in the file after %v", took)
	// One second on a quiet machine. Other tests load this one and kill the volume daemon: the fastest shows that
	// changes are watched for.
	if slices.Min(took) > 10*time.Second {
		t.Errorf("the changes took %v", took)
	}
	ns.Equal(p, "app", "cat /config/colour; ls /config", "greenbytes\ncolour\nnew")
	ns.Equal(p, "app", "cat /fixed", "blue")
	if _, err := bed.Client.CoreV1().Secrets(ns.Name).Patch(t.Context(), "keys", types.MergePatchType,
		[]byte(`{"stringData":{"password":"changed"}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	kit.Eventually(t, "the Secret's change in the file", func() error {
		return contains(filepath.Join(bed.Node.RootDir, "pods", string(p.UID), "volumes", "kubernetes.io~secret", "secret",
			"password"), "changed")
	})
}

// A volume that can't be had holds up its pod with an Event that says why, and comes once it can.
func TestMissingVolume(t *testing.T) {
	t.Parallel()
	ns := bed.Namespace(t)
	ns.Apply(pod("waits", `
  containers:
  - {name: app, image: "busybox:1.36", command: $FOREVER, volumeMounts: [{name: config, mountPath: /config}]}
  volumes: [{name: config, configMap: {name: later}}]
`))
	ns.Event("waits", "FailedMount", `MountVolume.SetUp failed for volume "config" : configmap "later" not found`)
	if waiting := ns.Waiting("waits", "app", "ContainerCreating"); waiting.Message != "" {
		t.Errorf("message while a volume is missing: %q", waiting.Message)
	}
	ns.Apply("{apiVersion: v1, kind: ConfigMap, metadata: {name: later}, data: {a: there}}")
	ns.Equal(ns.Running("waits"), "app", "cat /config/a", "there")
}

// contains is an error unless the file has exactly that content.
func contains(file, want string) error {
	data, err := os.ReadFile(file)
	if err == nil && string(data) != want {
		return fmt.Errorf("%s has %q, want %q", file, data, want)
	}
	return err
}

// reader reads two files that are swapped together, again and again: through one look at ..data it may find those of
// one version only, each whole. It leaves what else it finds in torn, the number of each new version in seen, and a
// byte for each round in rounds.
const reader = `trap "exit 0" TERM; cd /out; last=
while :; do
  [ -L /pair/..data ] || echo "..data is away" >> torn
  cd -P /pair/..data 2>/dev/null && x=$(cat a 2>/dev/null) && y=$(cat b 2>/dev/null) && cd /out || { cd /out; continue; }
  echo -n . >> rounds
  n=${x%% *}
  [ "$x" = "$y" ] || echo "$n and ${y%% *}, ${#x} and ${#y} bytes" >> torn
  case $x in *end) ;; *) echo "$n ends after ${#x} bytes" >> torn ;; esac
  [ "$n" = "$last" ] || echo "$n" >> seen
  last=$n
done`

// A hundred versions of two files are swapped under a reader that looks all the time and finds each of them, and none
// in part.
func TestAtomicUpdate(t *testing.T) {
	t.Parallel()
	ns := bed.Namespace(t)
	data := func(version int) string {
		value := fmt.Sprintf("%d %s end", version, strings.Repeat("x", 16<<10))
		return fmt.Sprintf(`{"data": {"a": %q, "b": %q}}`, value, value)
	}
	ns.Apply("{apiVersion: v1, kind: ConfigMap, metadata: {name: pair}, " + data(0)[1:] + "\n---\n" + pod("reader", `
  containers:
  - name: app
    image: busybox:1.36
    command:
    - sh
    - -c
    - |
      `+strings.ReplaceAll(reader, "\n", "\n      ")+`
    volumeMounts: [{name: pair, mountPath: /pair}, {name: out, mountPath: /out}]
  volumes: [{name: pair, configMap: {name: pair}}, {name: out, emptyDir: {}}]
`))
	p := ns.Running("reader")
	out := filepath.Join(bed.Node.RootDir, "pods", string(p.UID), "volumes", "kubernetes.io~empty-dir", "out")
	finds := func(version int) {
		t.Helper()
		kit.Eventually(t, fmt.Sprintf("the reader to find version %d", version), func() error {
			seen, err := os.ReadFile(filepath.Join(out, "seen"))
			if found := strings.Fields(string(seen)); err == nil && !slices.Contains(found, strconv.Itoa(version)) {
				err = fmt.Errorf("it has found %v", found)
			}
			return err
		})
	}
	finds(0)
	for version := 1; version <= 100; version++ {
		if _, err := bed.Client.CoreV1().ConfigMaps(ns.Name).Patch(t.Context(), "pair", types.MergePatchType,
			[]byte(data(version)), metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
		finds(version)
	}
	rounds, err := os.Stat(filepath.Join(out, "rounds"))
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d rounds", rounds.Size())
	if torn, err := os.ReadFile(filepath.Join(out, "torn")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the reader has found (%v):\n%s", err, torn)
	}
}

// An immutable ConfigMap isn't watched: whatever becomes of it, a pod that has it keeps what it has.
func TestImmutableConfigMap(t *testing.T) {
	t.Parallel()
	ns := bed.Namespace(t)
	ns.Apply("{apiVersion: v1, kind: ConfigMap, metadata: {name: fixed}, immutable: true, data: {a: first}}\n---\n" +
		"{apiVersion: v1, kind: ConfigMap, metadata: {name: loose}, data: {a: first}}\n---\n" + pod("holder", `
  containers:
  - name: app
    image: busybox:1.36
    command: $FOREVER
    volumeMounts: [{name: fixed, mountPath: /fixed}, {name: loose, mountPath: /loose}]
  volumes:
  - {name: fixed, projected: {defaultMode: 0440, sources: [{configMap: {name: fixed}}]}}
  - {name: loose, configMap: {name: loose, items: [{key: a, path: a}, {key: b, path: b}], optional: true}}
`))
	p := ns.Running("holder")
	ns.Equal(p, "app", "cat /fixed/a /loose/a; stat -L -c ' %a' /fixed/a; ls /loose", "firstfirst 440\na")
	for _, name := range []string{"fixed", "loose"} {
		if err := bed.Client.CoreV1().ConfigMaps(ns.Name).Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		ns.Apply("{apiVersion: v1, kind: ConfigMap, metadata: {name: " + name + "}, data: {a: second, b: new}}")
	}
	kit.Eventually(t, "the new content of the other one", func() error {
		got, err := ns.Try(p, "app", "cat /loose/a /loose/b")
		if err == nil && got != "secondnew" {
			return errors.New("still " + got)
		}
		return err
	})
	ns.Equal(p, "app", "cat /fixed/a", "first")
}
