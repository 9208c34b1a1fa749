// Package nfs mounts directories of NFS servers, which pods name themselves or have behind claims.
//
// # Writes
//
//	pods/<uid>/volumes/kubernetes.io~nfs/<volume>    the mount, as the kubelet has it
//
// # Owns
//
// This path, and what is mounted there. The data never: a directory is removed only when it is empty.
//
// # Guarantees
//
//   - A server that doesn't answer holds up its own volumes only. The daemon itself makes no system call that touches
//     such a mount: what is mounted is read from the kernel's table, and mount and umount are processes of their own,
//     which may hang without it.
//   - What is unmounted was written before, unless that takes longer than a minute: then it is unmounted by force, as
//     by the kubelet, and what was not written is lost.
//   - A mount that is merely busy is never forced: that would fail the requests of other pods that use the same server.
package nfs

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"kubelot.dev/bus/pause"
	"kubelot.dev/bus/topic"
	"kubelot.dev/daemon/mountpoint"
	"kubelot.dev/services/volume/internal/plugin"
	"kubelot.dev/services/volume/internal/program"
)

const (
	// pluginName is the kubelet's name of the plug-in, and dirName that of its directories below pods.
	pluginName = "kubernetes.io/nfs"
	dirName    = "kubernetes.io~nfs"
)

// Volumes are all volumes of NFS servers.
type Volumes struct {
	programs program.Runner
	// forceAfter is how long an unmount may take before it is forced, forceFor how long that may take, and answerWithin
	// how long a server has to answer.
	forceAfter, forceFor, answerWithin time.Duration
}

// New has mounted nothing.
func New() *Volumes {
	return &Volumes{forceAfter: time.Minute, forceFor: 20 * time.Second, answerWithin: 5 * time.Second}
}

// Kind is the kind of volumes in a list.
func (v *Volumes) Kind() plugin.Kind {
	return plugin.Kind{
		Name: pluginName, Dir: dirName, Plugin: v,
		Claims: func(spec *corev1.Volume) bool { return spec.NFS != nil },
	}
}

// Share is what to mount.
type Share struct {
	Source *corev1.NFSVolumeSource
	// Options are those of the mount, without the one that makes it read-only.
	Options  []string
	ReadOnly bool
}

// source is the share in the words of mount.nfs.
func (s Share) source() string {
	server := s.Source.Server
	if ip, err := netip.ParseAddr(server); err == nil && ip.Is6() {
		server = "[" + server + "]"
	}
	return server + ":" + s.Source.Path
}

// Mount mounts the volume of a pod's own spec.
func (v *Volumes) Mount(ctx context.Context, r plugin.Request) (plugin.Result, error) {
	return v.MountAt(ctx, r.Dir, Share{Source: r.Volume.NFS, ReadOnly: r.Volume.NFS.ReadOnly}, r.Ending)
}

// MountAt mounts a share at a directory of a pod, unless it is mounted; if the pod is ending it isn't any more.
func (v *Volumes) MountAt(ctx context.Context, dir string, s Share, ending bool) (plugin.Result, error) {
	result := plugin.Result{HostPath: dir, Plugin: pluginName, ReadOnly: s.ReadOnly}
	mounted, err := mountpoint.Mounted(dir)
	switch {
	case err != nil:
		return plugin.Result{}, err
	case mounted:
		return result, nil
	case ending:
		return plugin.Result{}, plugin.ErrNotMounted
	}
	if err := makeDir(dir); err != nil {
		return plugin.Result{}, err
	}
	if err := v.mount(ctx, dir, s); err != nil {
		// What was mounted nevertheless is unmounted when the pod goes, or taken by the next try.
		_ = removeDir(dir)
		return plugin.Result{}, err
	}
	return result, nil
}

func (v *Volumes) mount(ctx context.Context, dir string, s Share) error {
	if strings.HasPrefix(s.Source.Server, "-") {
		// With "--" before it, busybox' mount takes it for an option nevertheless.
		return fmt.Errorf("%q can't be the name of an NFS server: it begins with a dash", s.Source.Server)
	}
	options := s.Options
	if s.ReadOnly {
		options = append([]string{"ro"}, options...)
	}
	args := []string{"-t", "nfs"}
	if len(options) > 0 {
		args = append(args, "-o", strings.Join(options, ","))
	}
	args = append(args, s.source(), dir)
	ended, _ := plugin.Call(ctx, topic.DriverCall{Call: "mount -t nfs " + s.source(), Since: time.Now()})
	defer ended()
	out, err := v.programs.Run(ctx, program.Command{About: dir, Name: "mount", Args: args})
	if err == nil {
		return nil
	}
	// The words are the kubelet's.
	err = fmt.Errorf("mount failed: %w\nMounting command: mount\nMounting arguments: %s\nOutput: %s", err,
		strings.Join(args, " "), out)
	if strings.Contains(out, "helper program") || strings.Contains(out, "unknown filesystem type") {
		err = fmt.Errorf("%w\n%w", err, errNoHelper)
	}
	return err
}

var errNoHelper = errors.New("this node has no mount.nfs: install nfs-common (Debian, Ubuntu), nfs-utils (Red Hat) " +
	"or nfs-client (SUSE)")

// Unmount unmounts the volume at dir. It ends when the mount is gone from the kernel's table. What the kernel has not
// written by then it writes as soon as the server answers, if the unmount wasn't forced.
func (v *Volumes) Unmount(ctx context.Context, dir string) error {
	mounted, err := mountpoint.Mounted(dir)
	if err != nil || !mounted {
		return errors.Join(err, removeDir(dir))
	}
	if err := v.unmount(ctx, dir); err != nil {
		return err
	}
	return removeDir(dir)
}

func (v *Volumes) unmount(ctx context.Context, dir string) error {
	done, hangs, err := v.try(ctx, v.forceAfter, dir)
	if done || !hangs && v.answers(ctx, dir, v.forceAfter) == nil {
		return err
	}
	// Forcing fails the requests that are under way. Whoever waited for them goes only then, so it is tried again.
	begin := time.Now()
	for {
		if done, _, err = v.try(ctx, v.forceFor, dir, "-f"); done || time.Since(begin) >= v.forceFor || ctx.Err() != nil {
			return err
		}
		pause.For(ctx, min(time.Second, v.forceFor/4))
	}
}

// try runs umount with the options. It is done when nothing is mounted any more: the program itself may hang for
// longer, because the kernel takes the mount from the table first, and then writes what is to be written.
func (v *Volumes) try(ctx context.Context, limit time.Duration, dir string, options ...string) (done, hangs bool,
	err error,
) {
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("it has not ended within %s", limit))
	defer cancel()
	ended, _ := plugin.Call(ctx, topic.DriverCall{Call: "umount " + dir, Since: time.Now()})
	defer ended()
	args := append(options, dir)
	// By force it doesn't wait for the one before, which may hang, and ends by this.
	about := strings.Join(args, " ")
	out, err := v.programs.Run(ctx, program.Command{About: about, Name: "umount", Args: args})
	mounted, tableErr := mountpoint.Mounted(dir)
	switch {
	case tableErr != nil:
		return true, false, tableErr
	case !mounted:
		return true, false, nil
	case err == nil:
		return false, false, fmt.Errorf("unmount %s: something else is mounted there", dir)
	}
	return false, ctx.Err() != nil, fmt.Errorf("unmount failed: %w\nUnmounting arguments: %s\nOutput: %s", err, dir, out)
}

// errSilent is in the error of a volume whose server doesn't answer.
var errSilent = errors.New("the NFS server does not answer")

// Answers asks the volume's server, by a process of its own.
func (v *Volumes) Answers(ctx context.Context, dir string) error {
	return v.answers(ctx, dir, v.answerWithin)
}

func (v *Volumes) answers(ctx context.Context, dir string, limit time.Duration) error {
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("not within %s", limit))
	defer cancel()
	_, err := v.programs.Run(ctx, program.Command{About: dir + " answers", Name: "stat", Args: []string{"-f", dir}})
	if err != nil && ctx.Err() != nil {
		return fmt.Errorf("%w: %w", errSilent, context.Cause(ctx))
	}
	return nil // that it answers with an error is an answer
}

// makeDir makes the mount point. Nothing is mounted there.
func makeDir(dir string) error {
	if err := os.MkdirAll(filepath.Dir(dir), 0o750); err != nil {
		return err
	}
	if err := os.Mkdir(dir, 0o750); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return nil
}

// removeDir removes the mount point, never with its content. To a mount the kernel answers that it is busy, without
// asking the server.
func removeDir(dir string) error {
	if err := os.Remove(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove the mount point of a volume, never with its content: %w", err)
	}
	return nil
}
