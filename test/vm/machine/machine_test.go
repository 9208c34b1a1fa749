package machine

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"kubelot.dev/test/vm/image"
)

func TestArgs(t *testing.T) {
	m := &Machine{opts: Options{
		Dir: "/d", Image: &image.Image{Kernel: "/i/vmlinuz"}, SSHPort: 2222, Memory: 1024, CPUs: 3, Accelerator: emulation,
		Forwards: []Forward{{Host: "10.1.2.3:10250", Guest: 10250}},
	}}
	args := m.args()
	for _, want := range []string{
		"user,id=net,hostfwd=tcp:127.0.0.1:2222-:22,hostfwd=tcp:10.1.2.3:10250-:10250", "3", "1024", "/i/vmlinuz", emulation,
		"if=virtio,format=qcow2,cache=unsafe,discard=unmap,file=/d/disk.qcow2",
	} {
		if !slices.Contains(args, want) {
			t.Errorf("%q isn't among %q", want, args)
		}
	}
	if strings.Contains(strings.Join(args, " "), "payload") {
		t.Errorf("a disk for a payload that there isn't: %q", args)
	}
	m.opts.Payload = "/p"
	if args := strings.Join(m.args(), " "); !strings.Contains(args, "readonly=on,file=/d/payload.img") {
		t.Errorf("no disk for the payload: %q", args)
	}
}

func TestTopology(t *testing.T) {
	m := &Machine{opts: Options{
		Image: &image.Image{}, Memory: 4096, CPUs: 3, Accelerator: emulation,
		Topology: Topology{Sockets: 2, Cores: 4, Threads: 1},
	}}
	args := strings.Join(m.args(), " ")
	for _, want := range []string{
		"-smp sockets=2,cores=4,threads=1 ", processor + intel + " ", "-m 4096 ",
		"-object memory-backend-ram,id=memory0,size=2048M -numa node,nodeid=0,memdev=memory0 ",
		"-object memory-backend-ram,id=memory1,size=2048M -numa node,nodeid=1,memdev=memory1 ",
		"-numa cpu,node-id=0,socket-id=0 ", "-numa cpu,node-id=1,socket-id=1 ",
	} {
		if !strings.Contains(args, want) {
			t.Errorf("no %q in %q", want, args)
		}
	}
	if strings.Contains(args, "-numa dist") {
		t.Errorf("two nodes have distances: %q", args)
	}
	m.opts.Topology.Sockets = 4
	args = strings.Join(m.args(), " ")
	for _, want := range []string{"src=0,dst=1,val=12 ", "src=2,dst=3,val=12 ", "-numa dist,src=1,dst=2,val=20 "} {
		if !strings.Contains(args, want) {
			t.Errorf("no %q in %q", want, args)
		}
	}
	m.opts.Accelerator = "kvm"
	if args := strings.Join(m.args(), " "); strings.Contains(args, intel) {
		t.Errorf("with KVM the processor is of another vendor: %q", args)
	}
	m.opts.Topology = Topology{}
	if args := strings.Join(m.args(), " "); strings.Contains(args, "-numa") || !strings.Contains(args, "-smp 3 ") {
		t.Errorf("a machine without a topology: %q", args)
	}
}

func TestPrintable(t *testing.T) {
	if got := printable("[\x1b[0;32m  OK  \x1b[0m] Started\r\n\x1b[2Jx"); got != "[  OK  ] Started\nx" {
		t.Errorf("printable = %q", got)
	}
}

// The files are in the seed with their modes, after the whole of the image's initrd.
func TestSeed(t *testing.T) {
	if _, err := exec.LookPath("cpio"); err != nil {
		t.Skip("cpio isn't installed; the first machine installs it")
	}
	dir := t.TempDir()
	initrd, seed := filepath.Join(dir, "initrd"), filepath.Join(dir, "seed.cpio")
	if err := os.WriteFile(initrd, []byte("the image's"), 0o600); err != nil {
		t.Fatal(err)
	}
	err := writeSeed(t.Context(), seed, initrd, []File{
		{Path: "/etc/a", Text: "text"}, {Path: "/root/.ssh/key", Mode: 0o600, Text: "secret"}, {Path: "/bin/c", Link: "/d"},
	})
	if err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(seed)
	if err != nil {
		t.Fatal(err)
	}
	rest, found := strings.CutPrefix(string(data), "the image's")
	if !found {
		t.Fatal("the image's initrd doesn't come first")
	}
	list := exec.CommandContext(t.Context(), "cpio", "-itv", "--quiet")
	list.Stdin = strings.NewReader(rest)
	out, err := list.Output()
	if err != nil {
		t.Fatal(err)
	}
	for path, mode := range map[string]string{
		"seed/etc/a": "-rw-r--r--", "seed/root/.ssh/key": "-rw-------", "seed/bin/c -> /d": "lrwxrwxrwx",
		"seed/root/.ssh": "drwxr-xr-x",
	} {
		if !slices.ContainsFunc(strings.Split(string(out), "\n"), func(line string) bool {
			return strings.HasPrefix(line, mode) && strings.HasSuffix(line, " "+path)
		}) {
			t.Errorf("no %s %s in\n%s", mode, path, out)
		}
	}
}

func TestPayloadThatIsNotThere(t *testing.T) {
	err := makeDisk(t.Context(), filepath.Join(t.TempDir(), "disk"), "/no/such/directory")
	if err == nil || !strings.Contains(err.Error(), "/no/such/directory") {
		t.Errorf("error %v doesn't name the directory", err)
	}
}

func TestAcceleratorThatNobodyKnows(t *testing.T) {
	t.Setenv("VM_ACCEL", "xen")
	_, _, err := Accelerator(t.Context(), &image.Image{})
	if err == nil || !strings.Contains(err.Error(), "VM_ACCEL=xen") {
		t.Errorf("error %v doesn't name the variable", err)
	}
}
