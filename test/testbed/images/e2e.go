package images

import (
	"fmt"
	"path/filepath"
	"slices"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// e2eRegistry is where Kubernetes' end-to-end suite has its images from.
const e2eRegistry = "registry.k8s.io/e2e-test-images/"

// E2E says of which programs the images of Kubernetes' end-to-end suite are made.
type E2E struct {
	Busybox string // static
	Agnhost string
	Nnp     string // test/images/nonewprivs of k8s.io/kubernetes
	Pause   string
	Certs   string // directory with the localhost.crt and localhost.key that agnhost serves TLS with
}

// e2eGroup are images with the same files.
type e2eGroup struct {
	layer  func(E2E) *layer
	images map[string]v1.Config // by name and tag, which are those of Kubernetes 1.36
}

var e2eEnv = []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}

// e2eGroups leave out what no spec of a node agent runs. nginx is there as something that stays and serves
// port 80: the specs replace it and stop it, and never look at its pages.
func e2eGroups() []e2eGroup {
	agnhost := v1.Config{Env: e2eEnv, Entrypoint: []string{"/agnhost"}, Cmd: []string{"pause"}}
	return []e2eGroup{
		{agnhostLayer, map[string]v1.Config{
			"agnhost:2.63.0":          agnhost,
			"agnhost:2.55":            agnhost,
			"glibc-dns-testing:2.0.0": {Env: e2eEnv, Cmd: []string{"sh"}},
		}},
		{shellLayer, map[string]v1.Config{
			"busybox:1.37.0-1": {Env: e2eEnv, Cmd: []string{"sh"}},
			"nonroot:1.5":      {Env: e2eEnv, Cmd: []string{"sh"}, User: "1234"},
			"nginx:1.15-4":     {Env: e2eEnv, Cmd: []string{"httpd", "-f", "-p", "80", "-h", "/home"}},
			"nginx:1.27-0":     {Env: e2eEnv, Cmd: []string{"httpd", "-f", "-p", "80", "-h", "/mnt"}},
		}},
		{ipcLayer, map[string]v1.Config{"ipc-utils:1.4": {Env: e2eEnv, Cmd: []string{"sh"}}}},
		{kittenLayer, map[string]v1.Config{"kitten:1.8": {Env: e2eEnv}}},
		{nnpLayer, map[string]v1.Config{"nonewprivs:1.4": {Env: e2eEnv, Cmd: []string{"nnp"}}}},
	}
}

// E2EImages makes the images that Kubernetes' end-to-end suite asks for, as far as specs of a node need them.
func E2EImages(from E2E) ([]Image, error) {
	pause, err := Pause(from.Pause)
	if err != nil {
		return nil, err
	}
	all := []Image{pause}
	for _, group := range e2eGroups() {
		files, err := group.layer(from).finish()
		if err != nil {
			return nil, fmt.Errorf("images of the end-to-end suite: %w", err)
		}
		for name, config := range group.images {
			made, err := assemble(e2eRegistry+name, files, config)
			if err != nil {
				return nil, err
			}
			all = append(all, made)
		}
	}
	return all, nil
}

// E2EPackages are the Debian packages that E2EImages takes programs from.
func E2EPackages() []string {
	return []string{"busybox-static", "bash", "bind9-dnsutils", "curl", "libc-bin", "netcat-openbsd", "util-linux"}
}

// shellLayer has two shells, because Debian 12's busybox has neither the version nor the settings of the real image's:
// its shell drops from the environment what is no variable's name ("data-1"), but only busybox complains in the words
// that specs look for. So "sh", which the path finds, is bash, and "/bin/sh" is busybox.
func shellLayer(from E2E) *layer {
	l := newLayer()
	l.tree()
	l.users("", "") // the real image names no other group: specs read the numbers of fsGroups from ls
	l.shell(from.Busybox)
	l.program("bash")
	l.dir("/usr/local/bin", 0o755)
	l.link("/usr/local/bin/sh", "../../bin/bash")
	return l
}

// agnhostLayer has bash for its shell: that of Debian 12's busybox runs its own applets whatever the path says, and its
// nc knows no UDP. Nor does its dd know nocache, by which specs write to devices.
func agnhostLayer(from E2E) *layer {
	l := newLayer()
	l.tree()
	l.users("user-defined-in-image:x:1000:1000::/home:/bin/sh\n",
		"user-defined-in-image:x:1000:\ngroup-defined-in-image:x:50000:user-defined-in-image\n")
	l.shell(from.Busybox, "sh", "ash", "bash", "nc")
	l.copy("/agnhost", from.Agnhost, 0o755)
	l.link("/agnhost-2", "agnhost")
	for _, file := range []string{"localhost.crt", "localhost.key"} {
		l.copy("/"+file, filepath.Join(from.Certs, file), 0o644)
	}
	l.dir("/uploads", 0o755)
	for _, program := range []string{"bash", "curl", "dd", "dig", "nc.openbsd", "getent", "nsenter"} {
		l.program(program)
	}
	l.link("/bin/sh", "../usr/bin/bash")
	l.link("/usr/bin/nc", "nc.openbsd")
	return l
}

func ipcLayer(from E2E) *layer {
	l := newLayer()
	l.tree()
	l.users("", "")
	l.shell(from.Busybox, "ipcs")
	l.program("ipcs")
	l.program("ipcmk")
	return l
}

// kittenLayer has the files that are read when the image is mounted as a volume.
func kittenLayer(E2E) *layer {
	l := newLayer()
	l.dir("/etc", 0o755)
	l.file("/etc/os-release", 0o644, "NAME=\"Alpine Linux\"\n")
	l.file("/data.json", 0o644, "{\"image\": \"kitten.jpg\"}\n")
	return l
}

// nnpLayer has the program with the set-user-ID bit: what it prints reports whether the bit was honoured.
func nnpLayer(from E2E) *layer {
	l := userland(from.Busybox)
	l.copy("/usr/local/bin/nnp", from.Nnp, 0o4755)
	return l
}

// program copies one of the machine's programs and the shared libraries it is linked with, each to its own path.
func (l *layer) program(name string) {
	path, libraries, err := linked(name)
	if err != nil {
		l.fail(fmt.Errorf("put %s into an image: %w", name, err))
		return
	}
	l.copy("/usr/bin/"+name, path, 0o755)
	for _, library := range libraries {
		if !slices.Contains(l.shared, library) {
			l.shared = append(l.shared, library)
			l.copy(library, library, 0o755)
		}
	}
}
