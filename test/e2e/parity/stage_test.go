package parity

import (
	"context"
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"kubelot.dev/test/e2e/kit"
	"kubelot.dev/test/testbed/images"
	"kubelot.dev/test/testbed/node"
	"kubelot.dev/test/testbed/registry"
)

// stage is what the stories are played on: the bed, its registries, and the namespace of the agent's turn.
type stage struct {
	bed *kit.Bed
	ns  *kit.Namespace
	// agent is whose turn it is.
	agent node.Agent
	// open serves anybody, private those with a password, closed nobody at first.
	open, private, closed *registry.Registry
	digest                string // of the image digest in open
	most                  string // of the node's disk: two pods can't have as much
	needed                excuses
}

// login is whom the private registry lets in.
const (
	login    = "somebody"
	password = "pass:word"
)

// config is the agents' configuration besides that of all beds.
const config = `
registryPullQPS: 0
podPidsLimit: 512
`

func newStage(t *testing.T, bed *kit.Bed) *stage {
	t.Helper()
	s := &stage{bed: bed, needed: excuses{}}
	for _, r := range []**registry.Registry{&s.open, &s.private, &s.closed} {
		started, err := registry.Start()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(started.Close)
		if err := bed.CRI.UseRegistry(started.Addr, false); err != nil {
			t.Fatal(err)
		}
		*r = started
	}
	for _, name := range []string{"pulled", "always", "moved", "volume", "borrowed"} {
		s.push(t, s.open, name, name)
	}
	s.digest = s.push(t, s.open, "digest", "digest")
	s.push(t, s.open, "tagdigest", "digest")
	s.push(t, s.closed, "app", "closed")
	// Each pod has an image of its own, except those that want what others' credentials have brought.
	for _, name := range []string{
		"nobody", "wrong", "absent", "right", "both", "old", "team/path", "wildcard", "account",
		"node", "changing", "borrowed", "node/borrowed",
	} {
		s.push(t, s.private, name, name)
	}
	s.private.Require(login, password)
	for name, handler := range map[string]string{"heavy": "runc", "handless": "no-such-handler"} {
		class := &nodev1.RuntimeClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Handler: handler, Overhead: &nodev1.Overhead{
			PodFixed: corev1.ResourceList{
				corev1.ResourceMemory: resource.MustParse("8Mi"),
				corev1.ResourceCPU:    resource.MustParse("10m"),
			},
		}}
		if _, err := bed.Client.NodeV1().RuntimeClasses().Create(t.Context(), class, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

// push puts a busybox of its own into the registry and returns its digest.
func (s *stage) push(t *testing.T, r *registry.Registry, name, label string) string {
	t.Helper()
	img, err := images.Variant(s.bed.Busybox, r.Addr+"/"+name+":1", label)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.Push(t.Context(), img); err != nil {
		t.Fatal(err)
	}
	digest, err := img.Image.Digest()
	if err != nil {
		t.Fatal(err)
	}
	return digest.String()
}

// set readies the stage for an agent whose node is there.
func (s *stage) set(t *testing.T) {
	t.Helper()
	s.ns = s.bed.Namespace(t)
	disk := s.bed.KubeNode(t).Status.Allocatable.StorageEphemeral().Value()
	s.most = resource.NewQuantity(disk/10*6, resource.BinarySI).String()
	s.closed.Refuse(true)
	s.push(t, s.open, "moved", "moved")
	s.write(t, "config.json", dockerConfig(map[string]string{s.private.Addr + "/node": password}))
	s.write(t, "seccomp/profile.json", `{"defaultAction": "SCMP_ACT_ALLOW"}`)
	s.ns.Apply(s.filled(properties))
	for name, words := range pullSecrets {
		s.ns.Apply(s.pullSecret(name, words))
	}
	s.lend(t)
}

// lend has pods in another namespace bring images, and go.
func (s *stage) lend(t *testing.T) {
	t.Helper()
	ns := s.bed.Namespace(t)
	ns.Apply(s.pullSecret("elsewhere", pullSecrets["right"]))
	for name, spec := range lenders {
		ns.Apply(s.filled("apiVersion: v1\nkind: Pod\nmetadata: {name: " + name + "}\nspec:\n" + spec))
	}
	for name := range lenders {
		p := ns.Running(name)
		ns.Delete(name, 1)
		ns.Gone(p)
	}
}

// pullSecret is the manifest of a secret with passwords by location.
func (s *stage) pullSecret(name string, words map[string]string) string {
	return fmt.Sprintf("{apiVersion: v1, kind: Secret, metadata: {name: %s}, type: kubernetes.io/dockerconfigjson, "+
		"stringData: {.dockerconfigjson: '%s'}}", name, s.logins(words))
}

// logins is a docker configuration for these passwords by location.
func (s *stage) logins(words map[string]string) string {
	filled := map[string]string{}
	for location, word := range words {
		filled[s.filled(location)] = word
	}
	return dockerConfig(filled)
}

// write puts a file into the agent's root directory.
func (s *stage) write(t *testing.T, name, text string) {
	t.Helper()
	path := filepath.Join(s.bed.Node.RootDir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// dockerConfig is what docker login writes for these passwords by the registries' locations.
func dockerConfig(words map[string]string) string {
	var entries []string
	for location, word := range words {
		auth := base64.StdEncoding.EncodeToString([]byte(login + ":" + word))
		entries = append(entries, fmt.Sprintf(`%q:{"auth":%q}`, location, auth))
	}
	return `{"auths":{` + strings.Join(entries, ",") + `}}`
}

// filled puts what differs from bed to bed into a manifest.
func (s *stage) filled(text string) string {
	_, port, _ := strings.Cut(s.private.Addr, ":")
	return strings.NewReplacer(
		"$OPEN", s.open.Addr, "$PRIVATEPORT", port, "$PRIVATE", s.private.Addr, "$CLOSED", s.closed.Addr, "$MOST", s.most,
		"$DIGEST", s.digest, "$SEARCHES", searches(), "$NAMESPACE", s.ns.Name,
	).Replace(text)
}

// searches are more domains than a resolver takes.
func searches() string {
	var all []string
	for i := range 32 {
		all = append(all, fmt.Sprintf("domain%d.example", i))
	}
	return strings.Join(all, ", ")
}

// anonymous is filled's reverse, and leaves out what differs from run to run.
func (s *stage) anonymous(text string) string {
	text = strings.NewReplacer(s.open.Addr, "OPEN", s.private.Addr, "PRIVATE", s.closed.Addr, "CLOSED").Replace(text)
	return anonymous(text, s.ns.Name, s.bed.Bed.Dir)
}

// play runs one story until it has settled, and tells what is to be compared.
func (s *stage) play(t *testing.T, y story) (*corev1.Pod, string) {
	t.Helper()
	name := s.enter(t, y)
	p := s.ns.Wait(name, "settled", y.settled)
	if y.then != nil {
		s.heeds(p)
		y.then(t, s, p)
		p = s.ns.Wait(name, "settled again", y.again)
	}
	text := "status:\n" + s.status(t, p) + s.onNode(t, p)
	// Beside volumes that fail kubelot has the sandbox made, and the kubelet nothing.
	if p.Status.Phase != corev1.PodFailed && p.Status.Phase != corev1.PodSucceeded && y.event != "FailedMount" {
		text += seen(t, s.bed, s.ns, p)
	}
	if y.event != "" {
		s.ns.Event(name, y.event, y.eventText)
	}
	if y.look != "" {
		text += "look:\n" + s.ns.Exec(p, "app", y.look) + "\n"
	}
	return p, text
}

// heeds waits until what runs in the pod heeds SIGTERM, so that its end is as it wrote it.
func (s *stage) heeds(p *corev1.Pod) {
	for _, c := range slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses) {
		if c.State.Running != nil {
			s.ns.HeedsTERM(p, c.Name)
		}
	}
}

// enter makes the story's pod and returns its name.
func (s *stage) enter(t *testing.T, y story) string {
	t.Helper()
	manifest := s.filled("apiVersion: v1\nkind: Pod\nmetadata:\n  name: " + y.name + "\n" + y.meta + "spec:\n" + y.spec)
	if !y.static {
		s.ns.Apply(manifest)
		return y.name
	}
	s.manifest(t, y.name, manifest)
	return y.name + "-" + kit.NodeName
}

// manifest puts a pod into the manifest directory, as a careful editor does, by renaming.
func (s *stage) manifest(t *testing.T, name, text string) {
	t.Helper()
	text = strings.Replace(text, "metadata:\n", "metadata:\n  namespace: "+s.ns.Name+"\n", 1)
	draft := filepath.Join(s.bed.Node.ManifestDir, "."+name)
	if err := os.WriteFile(draft, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(draft, s.manifestPath(name)); err != nil {
		t.Fatal(err)
	}
}

func (s *stage) manifestPath(name string) string {
	return filepath.Join(s.bed.Node.ManifestDir, name+".yaml")
}

// strike takes the agent and what it has pulled away.
func (s *stage) strike(t *testing.T) {
	t.Helper()
	if err := s.bed.Node.Remove(); err != nil {
		t.Fatal(err)
	}
	if err := s.bed.Client.CoreV1().Nodes().Delete(t.Context(), kit.NodeName, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	store := s.bed.CRI.Images()
	list, err := store.ListImages(t.Context(), &runtimeapi.ListImagesRequest{})
	if err != nil {
		t.Fatal(err)
	}
	for _, image := range list.GetImages() {
		for _, name := range append(image.GetRepoTags(), image.GetRepoDigests()...) {
			if !strings.HasPrefix(name, "127.0.0.1:") {
				continue
			}
			if _, err := store.RemoveImage(t.Context(),
				&runtimeapi.RemoveImageRequest{Image: &runtimeapi.ImageSpec{Image: name}}); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// patch changes the pod with a merge patch; a subresource may be named.
func (s *stage) patch(t *testing.T, p *corev1.Pod, patch string, subresource ...string) {
	t.Helper()
	args := []string{"patch", "pod", p.Name, "--type=strategic", "--patch", patch}
	for _, name := range subresource {
		args = append(args, "--subresource="+name)
	}
	if out, err := s.ns.KubectlCommand(context.Background(), args...).CombinedOutput(); err != nil {
		t.Fatal(fmt.Errorf("%w: %s", err, out))
	}
}
