package machine

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"kubelot.dev/test/testbed/proc"
	"kubelot.dev/test/vm/image"
)

const (
	// probeTimeout is for a kernel that boots to its first program. With KVM that takes a second or two; on a machine
	// that is virtual itself KVM may be there and be slower than emulation.
	probeTimeout = 20 * time.Second
	emulation    = "tcg,thread=multi,tb-size=512"
	// processor has all that the accelerator has, but for a register that KVM refuses where it is nested, and two features
	// that cost an emulator time: it leaves its translated code at each access of the kernel to a process' memory, and
	// looks for pages in five tables.
	processor = "max,-arch-capabilities,-smap,-la57"
)

// Accelerator chooses KVM if a kernel boots with it in good time, and emulation if not. The answer is kept beside the
// image until this host reboots. The second result says why, for people. VM_ACCEL=kvm or tcg chooses by itself.
func Accelerator(ctx context.Context, img *image.Image) (accel, why string, err error) {
	switch chosen := os.Getenv("VM_ACCEL"); chosen {
	case "":
	case "kvm":
		return "kvm", "VM_ACCEL says so", nil
	case "tcg":
		return emulation, "VM_ACCEL says so", nil
	default:
		return "", "", fmt.Errorf("VM_ACCEL=%s: want kvm, tcg, or nothing, which is to find out", chosen)
	}
	if missing := statKVM(); missing != "" {
		return emulation, missing, nil
	}
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "", "", fmt.Errorf("choose an accelerator: %w", err)
	}
	kept := filepath.Join(filepath.Dir(img.Disk), "accelerator")
	data, err := os.ReadFile(kept)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", "", fmt.Errorf("choose an accelerator: %w", err)
	}
	if fields := strings.SplitN(string(data), "\n", 3); len(fields) == 3 && fields[0] == strings.TrimSpace(string(boot)) {
		return fields[1], fields[2], nil
	}
	accel, why = "kvm", "a kernel boots with it in good time"
	if err := probe(ctx, img); err != nil {
		accel, why = emulation, err.Error()
	}
	if ctx.Err() != nil {
		return "", "", fmt.Errorf("choose an accelerator: %w", context.Cause(ctx))
	}
	text := strings.TrimSpace(string(boot)) + "\n" + accel + "\n" + why
	if err := os.WriteFile(kept, []byte(text), 0o644); err != nil {
		return "", "", fmt.Errorf("keep the choice of an accelerator: %w", err)
	}
	return accel, why, nil
}

// probe boots the image's kernel with KVM to a program that switches the machine off.
func probe(ctx context.Context, img *image.Image) error {
	dir, err := os.MkdirTemp("", "kvm")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	process, err := proc.Start(proc.Spec{
		Name: "probe", Path: "qemu-system-x86_64", Dir: dir,
		Args: []string{
			"-nodefaults", "-no-user-config", "-display", "none", "-monitor", "none", "-serial", "stdio",
			"-accel", "kvm", "-cpu", processor, "-m", "512", "-kernel", img.Kernel, "-initrd", img.Initrd,
			"-no-reboot", "-append", "console=ttyS0 mitigations=off panic=-1 rdinit=/probe",
		},
	})
	if err != nil {
		return err
	}
	defer process.Kill()
	select {
	case <-process.Done():
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(probeTimeout):
		return fmt.Errorf("/dev/kvm is there, but a kernel hasn't booted with it after %v", probeTimeout)
	}
	if log := process.LogTail(1 << 16); !strings.Contains(log, "probe: the kernel runs") {
		return fmt.Errorf("/dev/kvm is there, but no kernel boots with it: %s", log[max(0, len(log)-500):])
	}
	return nil
}

// statKVM says why there is no KVM; it is empty where there may be.
func statKVM() string {
	if _, err := os.Stat("/dev/kvm"); err != nil {
		return err.Error()
	}
	return ""
}
