package csidriver

import (
	"context"
	"errors"
	"io/fs"
	"os"

	csiapi "github.com/container-storage-interface/spec/lib/go/csi"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// NodeGetVolumeStats is CSI's.
func (d *Driver) NodeGetVolumeStats(_ context.Context, r *csiapi.NodeGetVolumeStatsRequest,
) (*csiapi.NodeGetVolumeStatsResponse, error) {
	if r.GetVolumePath() == "" {
		return nil, status.Error(codes.InvalidArgument, "the volume's path is missing")
	}
	v, err := d.load(r.GetVolumeId())
	if err != nil {
		return nil, err
	}
	info, err := os.Stat(r.GetVolumePath())
	if errors.Is(err, fs.ErrNotExist) {
		return nil, status.Errorf(codes.NotFound, "nothing at %s", r.GetVolumePath())
	}
	if err != nil {
		return nil, err
	}
	if !info.IsDir() {
		return &csiapi.NodeGetVolumeStatsResponse{Usage: []*csiapi.VolumeUsage{
			{Unit: csiapi.VolumeUsage_BYTES, Total: v.Bytes},
		}}, nil
	}
	var s unix.Statfs_t
	if err := unix.Statfs(r.GetVolumePath(), &s); err != nil {
		return nil, err
	}
	return &csiapi.NodeGetVolumeStatsResponse{Usage: []*csiapi.VolumeUsage{
		{
			Unit: csiapi.VolumeUsage_BYTES, Total: int64(s.Blocks) * s.Bsize, Available: int64(s.Bavail) * s.Bsize,
			Used: int64(s.Blocks-s.Bfree) * s.Bsize,
		},
		{
			Unit: csiapi.VolumeUsage_INODES, Total: int64(s.Files), Available: int64(s.Ffree), Used: int64(s.Files - s.Ffree),
		},
	}}, nil
}

// NodeExpandVolume is CSI's.
func (d *Driver) NodeExpandVolume(ctx context.Context, r *csiapi.NodeExpandVolumeRequest,
) (*csiapi.NodeExpandVolumeResponse, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if r.GetVolumePath() == "" {
		return nil, status.Error(codes.InvalidArgument, "the volume's path is missing")
	}
	v, err := d.load(r.GetVolumeId())
	if err != nil {
		return nil, err
	}
	info, err := os.Stat(r.GetVolumePath())
	if err != nil {
		return nil, status.Errorf(codes.NotFound, "nothing at %s", r.GetVolumePath())
	}
	disk, err := d.disk(ctx, v.ID)
	if err == nil && disk == "" {
		err = status.Errorf(codes.FailedPrecondition, "volume %q isn't staged", v.ID)
	}
	if err != nil {
		return nil, err
	}
	if _, err := run(ctx, "losetup", "--set-capacity", disk); err != nil {
		return nil, err
	}
	if info.IsDir() && mounted(r.GetVolumePath()) {
		if err := grow(ctx, disk, r.GetVolumePath()); err != nil {
			return nil, err
		}
	}
	return &csiapi.NodeExpandVolumeResponse{CapacityBytes: v.Bytes}, nil
}

// grow has the filesystem that is mounted at the path take all of its disk. That needs CAP_SYS_RESOURCE for ext4, which
// root lacks in some containers and virtual machines, and for xfs it doesn't.
func grow(ctx context.Context, disk, path string) error {
	args := []string{"resize2fs", disk}
	if filesystem(ctx, disk) == xfs {
		args = []string{"xfs_growfs", path}
	}
	_, err := run(ctx, args[0], args[1:]...)
	return err
}
