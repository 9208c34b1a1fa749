package e2e

import (
	"context"
	"os"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	nodev1 "k8s.io/api/node/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"kubelot.dev/test/testbed/images"
)

// pushAs puts a busybox with another configuration into the registry.
func pushAs(t *testing.T, name string, change func(*v1.Config)) (ref string) {
	t.Helper()
	file, err := bed.Busybox.Image.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	file = file.DeepCopy()
	change(&file.Config)
	changed, err := mutate.ConfigFile(bed.Busybox.Image, file)
	if err != nil {
		t.Fatal(err)
	}
	ref, err = bed.Registry.Push(t.Context(), images.Image{Ref: "docker.io/" + name + ":1", Image: changed})
	if err != nil {
		t.Fatal(err)
	}
	return ref
}

// Programs that the runtime can't begin, or not as the one whom the spec or the image names.
func TestWhyPrograms(t *testing.T) {
	t.Parallel()
	ns := bed.Namespace(t)
	ns.Apply("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: scripts}\ndata:\n" +
		"  plain: echo\n  lost: |\n    #!/no/such/shell\n    echo\n")
	script := func(fields string) string {
		return container(fields+", volumeMounts: [{name: s, mountPath: /s}]",
			"  volumes: [{name: s, configMap: {name: scripts, defaultMode: 0755}}]\n")
	}
	const heard = ", terminationMessagePolicy: FallbackToLogsOnError"
	named := pushAs(t, "why/named", func(c *v1.Config) { c.User = "app" })
	unknown := pushAs(t, "why/unknown", func(c *v1.Config) { c.User = "nobody2" })
	empty := pushAs(t, "why/empty", func(c *v1.Config) { c.Cmd, c.Entrypoint = nil, nil })
	userUnknown := "the image doesn't know the user that its USER names"
	if bed.CRIO(t) {
		userUnknown = `the image knows no user "nobody2"`
	}
	explained(t, ns, []stuck{
		{"directory", container(`command: [/etc]`, ""), []string{
			`container app can't start: "/etc", which it shall run, is a directory`,
		}},
		{"plain", script(`command: [/s/plain]` + heard), []string{
			"its program is made for another kind of machine, or is a script without a #! line (started ",
			"or begin the script with #!/bin/sh",
		}},
		{"lost", script(`command: [/s/lost]` + heard), []string{
			"the interpreter or the loader of /s/lost isn't in the image (started ",
		}},
		{"unheard", script(`command: [/s/plain]`), []string{
			"exit code 255, which means that the program says so itself, or couldn't be executed: the end of its log says which",
		}},
		{"workdir", container(`workingDir: /etc/passwd`, ""), []string{
			`it can't enter its working directory "/etc/passwd"`, "-> correct workingDir: in the spec of container app",
		}},
		{"contradiction", container(`securityContext: {runAsNonRoot: true, runAsUser: 0}`, ""), []string{
			"its spec contradicts itself: runAsNonRoot: true and runAsUser: 0",
		}},
		{"named", container(`image: "`+named+`", securityContext: {runAsNonRoot: true}`, ""), []string{
			`it must not run as root (runAsNonRoot: true), and nobody can tell whether the image's user "app" is root`,
		}},
		{"unknown", container(`image: "`+unknown+`"`, ""), []string{
			userUnknown, "securityContext.runAsUser",
		}},
		{"empty", "  containers: [{name: app, image: \"" + empty + "\"}]\n", []string{
			"neither its spec nor its image says what to run", "-> set command: in the spec of container app",
		}},
		{"memory", container(`resources: {limits: {memory: 512Ki}}`, ""), []string{
			"the memory limit of the pod is too low to even begin", "-> raise resources.limits.memory in the spec",
		}},
		{
			"seccomp", container(`securityContext: {seccompProfile: {type: Localhost, localhostProfile: no/such.json}}`, ""),
			[]string{"its seccomp profile isn't on this node", "-> put the profile below /var/lib/kubelet/seccomp"},
		},
		{
			"apparmor", container(`securityContext: {appArmorProfile: {type: Localhost, localhostProfile: no-such}}`, ""),
			[]string{appArmorWords()},
		},
	})
}

// appArmorWords is what becomes of a pod with a profile that isn't loaded: not every machine has AppArmor.
func appArmorWords() string {
	if _, err := os.Stat("/sys/module/apparmor/parameters/enabled"); err == nil {
		return "its AppArmor profile isn't loaded on this node"
	}
	return "this node has refused it: its AppArmor profile can't be enforced: AppArmor is not enabled on the host"
}

// Mounts that can't be made, and environments that can't be filled.
func TestWhyMounts(t *testing.T) {
	t.Parallel()
	ns := bed.Namespace(t)
	ns.Apply("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: there}\ndata: {a: b}\n")
	dir := t.TempDir()
	if err := os.WriteFile(dir+"/file", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	volumes := "  volumes: [{name: config, configMap: {name: there}}, {name: empty, emptyDir: {}}, " +
		"{name: file, hostPath: {path: " + dir + "/file}}, {name: dir, hostPath: {path: " + dir + "}}]\n"
	before := func(command string) string {
		return `  initContainers: [{name: first, image: "busybox:1.36", command: [sh, -c, "` + command +
			`"], volumeMounts: [{name: empty, mountPath: /v}]}]` + "\n"
	}
	env := func(from string) string { return container(`env: [{name: A, valueFrom: {`+from+`}}]`, volumes) }
	explained(t, ns, []stuck{
		{"file", container("volumeMounts: [{name: file, mountPath: /tmp}]", volumes), []string{
			`/file" can't be mounted at "/tmp": one is a file, the other a directory`,
		}},
		{"proc", container("volumeMounts: [{name: empty, mountPath: /proc/foo}]", volumes), []string{
			`the mount point "/proc/foo" can't be made`,
		}},
		{
			"readonly", container("volumeMounts: [{name: dir, mountPath: /ro, readOnly: true}, "+
				"{name: empty, mountPath: /ro/sub}]", volumes),
			[]string{`the mount point "/ro/sub" can't be made: what it lies in is read-only`},
		},
		{"subpath", before("ln -s /etc /v/out") +
			container("volumeMounts: [{name: empty, mountPath: /v, subPath: out}]", volumes), []string{
			`the subPath of its volume "empty" can't be used: it leads out of the volume`,
		}},
		{"subfile", before("touch /v/file") +
			container("volumeMounts: [{name: empty, mountPath: /v, subPath: file/below}]", volumes), []string{
			`the subPath of its volume "empty" can't be used: a part of it is not a directory`,
		}},
		{"configmap", env("configMapKeyRef: {name: absent, key: a}"), []string{
			`container app can't start: the ConfigMap "absent" doesn't exist in the namespace $NS`,
			"-> create what is missing: kubectl create configmap absent -n $NS",
		}},
		{"configkey", env("configMapKeyRef: {name: there, key: absent}"), []string{
			`the ConfigMap "there" has no key "absent"`,
		}},
		{"envfile", before("true") + env("fileKeyRef: {volumeName: empty, path: app.env, key: A}"), []string{
			`the file "app.env" of its volume empty, which its environment comes from, can't be used`,
		}},
		{"envkey", before(`echo \"B='1'\" > /v/app.env`) +
			env("fileKeyRef: {volumeName: empty, path: app.env, key: A}"), []string{
			`the file "app.env", which its environment comes from, has no key "A"`,
		}},
	})
}

// Sandboxes that can't be made.
func TestWhySandboxes(t *testing.T) {
	t.Parallel()
	ns := bed.Namespace(t)
	classes := bed.Client.NodeV1().RuntimeClasses()
	lost, brief := ns.Name+"-lost", ns.Name+"-brief"
	for name, handler := range map[string]string{lost: "no-such-handler", brief: "runc"} {
		class := &nodev1.RuntimeClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Handler: handler}
		if _, err := classes.Create(t.Context(), class, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = classes.Delete(context.Background(), name, metav1.DeleteOptions{}) })
	}
	// The API server takes no pod of a class that doesn't exist.
	ns.Apply(pod("class", "  schedulingGates: [{name: example.com/wait}]\n  runtimeClassName: "+brief+"\n"+
		container("", "")))
	if err := classes.Delete(t.Context(), brief, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	ns.Kubectl("patch", "pod", "class", "--type=merge", "-p", `{"spec":{"schedulingGates":null}}`)
	ns.Apply(strings.Replace(pod("bandwidth", container("", "")), "metadata:\n",
		"metadata:\n  annotations: {kubernetes.io/ingress-bandwidth: \"1\"}\n", 1))
	parameter := "net.ipv4.ip_local_port_range"
	if bed.CRIO(t) {
		parameter = strings.ReplaceAll(parameter, ".", "/")
	}
	explained(t, ns, []stuck{
		{"handler", "  runtimeClassName: " + lost + "\n" + container("", ""), []string{
			`the pod can't start: the runtime on this node has no handler "no-such-handler", which the pod's RuntimeClass ` +
				"names",
		}},
		{
			"sysctl", "  securityContext: {sysctls: [{name: net.ipv4.ip_local_port_range, value: none}]}\n" + container("", ""),
			[]string{"the pod can't start: the kernel parameter " + parameter + " can't be set"},
		},
	})
	says(t, ns, "class", `the pod can't start: the RuntimeClass "`+brief+`" doesn't exist`)
	if bed.CRIO(t) {
		ns.Running("bandwidth") // CRI-O leaves the checks of bandwidths to the plugins
		return
	}
	says(t, ns, "bandwidth", "unreasonably small")
}
