package csidriver

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	csiapi "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

func (d *Driver) topology() *csiapi.Topology {
	return &csiapi.Topology{Segments: map[string]string{d.cfg.Segment[0]: d.cfg.Segment[1]}}
}

// NodeGetInfo is CSI's.
func (d *Driver) NodeGetInfo(context.Context, *csiapi.NodeGetInfoRequest) (*csiapi.NodeGetInfoResponse, error) {
	most, err := maxVolumes(d.cfg.State, d.cfg.MaxVolumes)
	if err != nil {
		return nil, err
	}
	answer := &csiapi.NodeGetInfoResponse{NodeId: d.cfg.NodeID, MaxVolumesPerNode: most}
	if d.cfg.Segment[0] != "" {
		answer.AccessibleTopology = d.topology()
	}
	return answer, nil
}

// NodeGetCapabilities is CSI's.
func (d *Driver) NodeGetCapabilities(context.Context, *csiapi.NodeGetCapabilitiesRequest,
) (*csiapi.NodeGetCapabilitiesResponse, error) {
	answer := &csiapi.NodeGetCapabilitiesResponse{}
	for t, lacks := range map[csiapi.NodeServiceCapability_RPC_Type]bool{
		csiapi.NodeServiceCapability_RPC_STAGE_UNSTAGE_VOLUME:     d.cfg.NoStage,
		csiapi.NodeServiceCapability_RPC_GET_VOLUME_STATS:         d.cfg.NoStats,
		csiapi.NodeServiceCapability_RPC_EXPAND_VOLUME:            d.cfg.NoExpand,
		csiapi.NodeServiceCapability_RPC_VOLUME_MOUNT_GROUP:       !d.cfg.MountGroup,
		csiapi.NodeServiceCapability_RPC_SINGLE_NODE_MULTI_WRITER: false,
	} {
		if !lacks {
			answer.Capabilities = append(answer.Capabilities, &csiapi.NodeServiceCapability{
				Type: &csiapi.NodeServiceCapability_Rpc{Rpc: &csiapi.NodeServiceCapability_RPC{Type: t}},
			})
		}
	}
	return answer, nil
}

// NodeStageVolume is CSI's: the volume becomes a disk, and its filesystem is mounted.
func (d *Driver) NodeStageVolume(ctx context.Context, r *csiapi.NodeStageVolumeRequest,
) (*csiapi.NodeStageVolumeResponse, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := checkPath("staging", r.GetStagingTargetPath()); err != nil {
		return nil, err
	}
	if err := d.checkNodeCapability(r.GetVolumeCapability()); err != nil {
		return nil, err
	}
	v, err := d.load(r.GetVolumeId())
	if err != nil {
		return nil, err
	}
	if err := d.checkAttached(v, r.GetPublishContext()); err != nil {
		return nil, err
	}
	return &csiapi.NodeStageVolumeResponse{}, d.stage(ctx, v, r.GetStagingTargetPath(), r.GetVolumeCapability())
}

// checkNodeCapability refuses what the driver can't do on a node: a group that it hasn't said it would give files to.
func (d *Driver) checkNodeCapability(c *csiapi.VolumeCapability) error {
	if group := c.GetMount().GetVolumeMountGroup(); group != "" && !d.cfg.MountGroup {
		return status.Errorf(codes.InvalidArgument, "the driver gives no files to the group %s", group)
	}
	return checkCapabilities([]*csiapi.VolumeCapability{c})
}

// checkAttached refuses a volume that isn't attached here, or whose caller doesn't know what the attacher has said.
func (d *Driver) checkAttached(v volume, publishContext map[string]string) error {
	if d.cfg.NoAttach || v.Node != "" && publishContext["attached"] == "to "+v.Node {
		return nil
	}
	return status.Errorf(codes.FailedPrecondition, "volume %q isn't attached: it is at %q, the publish context is %q",
		v.ID, v.Node, publishContext)
}

// stage makes the volume's disk, and mounts its filesystem at the path unless it is to be a disk.
func (d *Driver) stage(ctx context.Context, v volume, path string, c *csiapi.VolumeCapability) error {
	disk, err := d.attach(ctx, v)
	if err != nil || c.GetBlock() != nil || mounted(path) {
		return err
	}
	kind := filesystem(ctx, disk)
	if kind == "" {
		kind = cmp.Or(c.GetMount().GetFsType(), ext4)
		if _, err := run(ctx, "mkfs."+kind, "-q", map[string]string{ext4: "-F", xfs: "-f"}[kind], disk); err != nil {
			return err
		}
	}
	args := []string{"-t", kind, disk, path}
	if flags := c.GetMount().GetMountFlags(); len(flags) > 0 {
		args = append(args, "-o", strings.Join(flags, ","))
	}
	if err := os.MkdirAll(path, 0o750); err != nil {
		return err
	}
	_, err = run(ctx, "mount", args...)
	if group := c.GetMount().GetVolumeMountGroup(); err == nil && group != "" {
		_, err = run(ctx, "chgrp", group, path)
	}
	return err
}

// filesystem is the kind of the filesystem on a disk; empty for none. Without -p, blkid answers from its cache what an
// earlier disk of the same name had two seconds ago.
func filesystem(ctx context.Context, disk string) string {
	kind, _ := run(ctx, "blkid", "-p", "-o", "value", "-s", "TYPE", disk)
	return strings.TrimSpace(kind)
}

// attach makes the disk of a volume, unless there is one.
func (d *Driver) attach(ctx context.Context, v volume) (string, error) {
	if disk, err := d.disk(ctx, v.ID); err != nil || disk != "" {
		return disk, err
	}
	disk, err := run(ctx, "losetup", "--find", "--show", d.image(v.ID))
	return strings.TrimSpace(disk), err
}

// disk is the loop device of a volume; empty where there is none.
func (d *Driver) disk(ctx context.Context, id string) (string, error) {
	out, err := run(ctx, "losetup", "--noheadings", "--output", "NAME", "--associated", d.image(id))
	first, _, _ := strings.Cut(strings.TrimSpace(out), "\n")
	return first, err
}

// NodeUnstageVolume is CSI's.
func (d *Driver) NodeUnstageVolume(ctx context.Context, r *csiapi.NodeUnstageVolumeRequest,
) (*csiapi.NodeUnstageVolumeResponse, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := checkPath("staging", r.GetStagingTargetPath()); err != nil {
		return nil, err
	}
	if _, err := d.load(r.GetVolumeId()); err != nil {
		return nil, err
	}
	if err := unmount(ctx, r.GetStagingTargetPath()); err != nil {
		return nil, err
	}
	return &csiapi.NodeUnstageVolumeResponse{}, d.detach(ctx, r.GetVolumeId())
}

func (d *Driver) detach(ctx context.Context, id string) error {
	disk, err := d.disk(ctx, id)
	if err != nil || disk == "" {
		return err
	}
	_, err = run(ctx, "losetup", "--detach", disk)
	return err
}

// NodePublishVolume is CSI's: a bind mount of what was staged, or a directory of its own for a volume of a pod's spec.
func (d *Driver) NodePublishVolume(ctx context.Context, r *csiapi.NodePublishVolumeRequest,
) (*csiapi.NodePublishVolumeResponse, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := checkPath("target", r.GetTargetPath()); err != nil {
		return nil, err
	}
	if err := d.checkNodeCapability(r.GetVolumeCapability()); err != nil {
		return nil, err
	}
	source, err := d.source(ctx, r)
	if err == nil {
		err = d.alone(ctx, r, source)
	}
	if err != nil {
		return nil, err
	}
	return &csiapi.NodePublishVolumeResponse{}, publish(ctx, r, source)
}

// alone refuses a second target of a volume that only one may write to.
func (d *Driver) alone(ctx context.Context, r *csiapi.NodePublishVolumeRequest, source string) error {
	if r.GetVolumeCapability().GetAccessMode().GetMode() != csiapi.VolumeCapability_AccessMode_SINGLE_NODE_SINGLE_WRITER {
		return nil
	}
	disk, err := d.disk(ctx, r.GetVolumeId())
	if err != nil || disk == "" {
		return err
	}
	points, err := mountPoints(disk)
	for _, point := range points {
		if point != source && point != r.GetTargetPath() {
			return status.Errorf(codes.FailedPrecondition, "volume %q is at %s already", r.GetVolumeId(), point)
		}
	}
	return err
}

// mountPoints are where the filesystem on a disk is mounted.
func mountPoints(disk string) ([]string, error) {
	table, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	var points []string
	for line := range strings.Lines(string(table)) {
		mount, filesystem, _ := strings.Cut(line, " - ")
		if fields := strings.Fields(filesystem); len(fields) > 1 && fields[1] == disk {
			points = append(points, strings.Fields(mount)[4])
		}
	}
	return points, nil
}

// source is what is published.
func (d *Driver) source(ctx context.Context, r *csiapi.NodePublishVolumeRequest) (string, error) {
	if r.GetVolumeContext()["csi.storage.k8s.io/ephemeral"] == "true" {
		return d.ephemeral(r)
	}
	v, err := d.load(r.GetVolumeId())
	if err != nil {
		return "", err
	}
	if err := d.checkAttached(v, r.GetPublishContext()); err != nil {
		return "", err
	}
	block := r.GetVolumeCapability().GetBlock() != nil
	if d.cfg.NoStage {
		own := filepath.Join(d.cfg.State, "mounts", v.ID)
		if err := d.stage(ctx, v, own, r.GetVolumeCapability()); err != nil {
			return "", err
		}
		if !block {
			return own, nil
		}
	} else if err := checkPath("staging", r.GetStagingTargetPath()); err != nil {
		return "", err
	} else if !block {
		if !mounted(r.GetStagingTargetPath()) {
			return "", status.Errorf(codes.FailedPrecondition, "volume %q isn't staged at %s", v.ID, r.GetStagingTargetPath())
		}
		return r.GetStagingTargetPath(), nil
	}
	disk, err := d.disk(ctx, v.ID)
	if err == nil && disk == "" {
		err = status.Errorf(codes.FailedPrecondition, "volume %q isn't staged", v.ID)
	}
	return disk, err
}

// ephemeral makes the directory of a volume that only its pod has. Files say what the driver was told, so that a pod
// can look.
func (d *Driver) ephemeral(r *csiapi.NodePublishVolumeRequest) (string, error) {
	if filepath.Base(r.GetVolumeId()) != r.GetVolumeId() || r.GetVolumeId() == "" {
		return "", status.Errorf(codes.InvalidArgument, "%q can't be a volume's ID", r.GetVolumeId())
	}
	dir := filepath.Join(d.cfg.State, "ephemeral", r.GetVolumeId())
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	for name, values := range map[string]map[string]string{"context": r.GetVolumeContext(), "secrets": r.GetSecrets()} {
		for key, value := range values {
			file := filepath.Join(dir, name+"."+strings.ReplaceAll(key, "/", "_"))
			if err := os.WriteFile(file, []byte(value), 0o644); err != nil {
				return "", err
			}
		}
	}
	return dir, nil
}

func publish(ctx context.Context, r *csiapi.NodePublishVolumeRequest, source string) error {
	target := r.GetTargetPath()
	if mounted(target) {
		return nil
	}
	var err error
	if r.GetVolumeCapability().GetBlock() != nil {
		var file *os.File
		if file, err = os.OpenFile(target, os.O_CREATE, 0o600); err == nil {
			err = file.Close()
		}
	} else {
		err = os.MkdirAll(target, 0o755)
	}
	if err != nil {
		return err
	}
	options := "bind"
	if r.GetReadonly() {
		options = "bind,ro"
	}
	_, err = run(ctx, "mount", "-o", options, source, target)
	return err
}

// NodeUnpublishVolume is CSI's.
func (d *Driver) NodeUnpublishVolume(ctx context.Context, r *csiapi.NodeUnpublishVolumeRequest,
) (*csiapi.NodeUnpublishVolumeResponse, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := checkPath("target", r.GetTargetPath()); err != nil {
		return nil, err
	}
	id := r.GetVolumeId()
	dir := filepath.Join(d.cfg.State, "ephemeral", filepath.Base(id))
	_, err := os.Stat(dir)
	own := id != "" && err == nil
	if !own && !strings.HasPrefix(id, "csi-") {
		if _, err := d.load(id); err != nil {
			return nil, err
		}
	}
	if err := unmount(ctx, r.GetTargetPath()); err != nil {
		return nil, err
	}
	if err := os.Remove(r.GetTargetPath()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	switch {
	case own:
		return &csiapi.NodeUnpublishVolumeResponse{}, os.RemoveAll(dir)
	case d.cfg.NoStage && !strings.HasPrefix(id, "csi-"):
		return &csiapi.NodeUnpublishVolumeResponse{}, d.release(ctx, id)
	}
	return &csiapi.NodeUnpublishVolumeResponse{}, nil
}

// release gives up the driver's own mount of a volume that isn't staged, once no pod has it.
func (d *Driver) release(ctx context.Context, id string) error {
	own := filepath.Join(d.cfg.State, "mounts", id)
	disk, err := d.disk(ctx, id)
	if err != nil {
		return err
	}
	if points, err := mountPoints(disk); err != nil || len(points) > 1 {
		return err
	}
	return errors.Join(unmount(ctx, own), d.detach(ctx, id))
}

// Release gives up the loop devices that a driver with that state directory has left.
func Release(ctx context.Context, state string) error {
	out, err := run(ctx, "losetup", "--noheadings", "--output", "NAME,BACK-FILE")
	for line := range strings.Lines(out) {
		device, file, _ := strings.Cut(strings.TrimSpace(line), " ")
		if strings.HasPrefix(strings.TrimSpace(file), state+"/") {
			_, detachErr := run(ctx, "losetup", "--detach", device)
			err = errors.Join(err, detachErr)
		}
	}
	return err
}

func checkPath(what, path string) error {
	if !filepath.IsAbs(path) {
		return status.Errorf(codes.InvalidArgument, "the %s path %q is missing or not absolute", what, path)
	}
	return nil
}

// mounted reports whether something is mounted at the path.
func mounted(path string) bool {
	table, err := os.ReadFile("/proc/self/mountinfo")
	return err == nil && strings.Contains(string(table), " "+path+" ")
}

// unmount unmounts all that is mounted at the path.
func unmount(ctx context.Context, path string) error {
	for mounted(path) {
		if _, err := run(ctx, "umount", path); err != nil {
			return err
		}
	}
	return nil
}

// run runs a program. A call that is given up doesn't stop it half-way.
func run(ctx context.Context, name string, args ...string) (string, error) {
	out, err := exec.CommandContext(context.WithoutCancel(ctx), name, args...).CombinedOutput()
	if err != nil && (name != "blkid" || len(out) > 0) {
		return string(out), fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, out)
	}
	return string(out), nil
}
