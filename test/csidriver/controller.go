package csidriver

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	csiapi "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

const (
	defaultBytes = 32 << 20
	maxBytes     = 1 << 40

	// The filesystems that the driver makes. An xfs has at least 300 MB. The kernel lets root make it larger while it is
	// mounted where root lacks CAP_SYS_RESOURCE, which an ext4 needs.
	ext4 = "ext4"
	xfs  = "xfs"
)

// volume is what is known of a volume, in a file of its own.
type volume struct {
	ID    string `json:"id"`
	Name  string `json:"name"`
	Bytes int64  `json:"bytes"`
	// Node is where it is attached.
	Node string `json:"node,omitempty"`
	// ReadOnly is how it is attached.
	ReadOnly bool `json:"readOnly,omitempty"`
}

func (d *Driver) image(id string) string  { return filepath.Join(d.volumes(), id+".img") }
func (d *Driver) record(id string) string { return filepath.Join(d.volumes(), id+".json") }

// load reads a volume; NotFound where there is none.
func (d *Driver) load(id string) (volume, error) {
	var v volume
	if id == "" {
		return v, status.Error(codes.InvalidArgument, "the volume's ID is missing")
	}
	if filepath.Base(id) != id || len(id) > 128 {
		return v, status.Errorf(codes.NotFound, "no volume %q", id)
	}
	data, err := os.ReadFile(d.record(id))
	if errors.Is(err, fs.ErrNotExist) {
		return v, status.Errorf(codes.NotFound, "no volume %q", id)
	}
	if err == nil {
		err = json.Unmarshal(data, &v)
	}
	return v, err
}

func (d *Driver) save(v volume) error {
	data, err := json.Marshal(v)
	if err != nil {
		return err
	}
	if err := os.WriteFile(d.record(v.ID)+".new", data, 0o600); err != nil {
		return err
	}
	return os.Rename(d.record(v.ID)+".new", d.record(v.ID))
}

// ControllerGetCapabilities is CSI's.
func (d *Driver) ControllerGetCapabilities(context.Context, *csiapi.ControllerGetCapabilitiesRequest,
) (*csiapi.ControllerGetCapabilitiesResponse, error) {
	types := []csiapi.ControllerServiceCapability_RPC_Type{
		csiapi.ControllerServiceCapability_RPC_CREATE_DELETE_VOLUME,
		csiapi.ControllerServiceCapability_RPC_LIST_VOLUMES,
		csiapi.ControllerServiceCapability_RPC_GET_CAPACITY,
		csiapi.ControllerServiceCapability_RPC_SINGLE_NODE_MULTI_WRITER,
	}
	if !d.cfg.NoAttach {
		types = append(types, csiapi.ControllerServiceCapability_RPC_PUBLISH_UNPUBLISH_VOLUME,
			csiapi.ControllerServiceCapability_RPC_PUBLISH_READONLY)
	}
	if !d.cfg.NoExpand {
		types = append(types, csiapi.ControllerServiceCapability_RPC_EXPAND_VOLUME)
	}
	answer := &csiapi.ControllerGetCapabilitiesResponse{}
	for _, t := range types {
		answer.Capabilities = append(answer.Capabilities, &csiapi.ControllerServiceCapability{
			Type: &csiapi.ControllerServiceCapability_Rpc{Rpc: &csiapi.ControllerServiceCapability_RPC{Type: t}},
		})
	}
	return answer, nil
}

// CreateVolume is CSI's. A volume's ID follows from its name, so that a name has one volume.
func (d *Driver) CreateVolume(_ context.Context, r *csiapi.CreateVolumeRequest) (*csiapi.CreateVolumeResponse, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if r.GetName() == "" {
		return nil, status.Error(codes.InvalidArgument, "the volume's name is missing")
	}
	if err := checkCapabilities(r.GetVolumeCapabilities()); err != nil {
		return nil, err
	}
	least, most := r.GetCapacityRange().GetRequiredBytes(), r.GetCapacityRange().GetLimitBytes()
	size := cmp.Or(least, min(cmp.Or(most, defaultBytes), defaultBytes))
	if size > maxBytes || (most > 0 && size > most) {
		return nil, status.Errorf(codes.OutOfRange, "a volume can't have %d bytes", size)
	}
	v := volume{ID: fmt.Sprintf("vol-%.12x", sha256.Sum256([]byte(r.GetName()))), Name: r.GetName(), Bytes: size}
	if known, err := d.load(v.ID); err == nil {
		if known.Bytes < least || (most > 0 && known.Bytes > most) {
			return nil, status.Errorf(codes.AlreadyExists, "volume %q exists with %d bytes", v.Name, known.Bytes)
		}
		v = known
	} else if err := d.create(v); err != nil {
		return nil, err
	}
	answer := &csiapi.Volume{VolumeId: v.ID, CapacityBytes: v.Bytes, VolumeContext: r.GetParameters()}
	if d.cfg.Segment[0] != "" {
		answer.AccessibleTopology = []*csiapi.Topology{d.topology()}
	}
	return &csiapi.CreateVolumeResponse{Volume: answer}, nil
}

func (d *Driver) create(v volume) error {
	image, err := os.OpenFile(d.image(v.ID), os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	return errors.Join(image.Truncate(v.Bytes), image.Close(), d.save(v))
}

// DeleteVolume is CSI's.
func (d *Driver) DeleteVolume(_ context.Context, r *csiapi.DeleteVolumeRequest) (*csiapi.DeleteVolumeResponse, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	v, err := d.load(r.GetVolumeId())
	if status.Code(err) == codes.NotFound {
		return &csiapi.DeleteVolumeResponse{}, nil
	}
	if err != nil {
		return nil, err
	}
	if v.Node != "" {
		return nil, status.Errorf(codes.FailedPrecondition, "volume %q is attached to %s", v.ID, v.Node)
	}
	return &csiapi.DeleteVolumeResponse{}, errors.Join(os.Remove(d.image(v.ID)), os.Remove(d.record(v.ID)))
}

// ControllerPublishVolume is CSI's.
func (d *Driver) ControllerPublishVolume(_ context.Context, r *csiapi.ControllerPublishVolumeRequest,
) (*csiapi.ControllerPublishVolumeResponse, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if r.GetNodeId() == "" {
		return nil, status.Error(codes.InvalidArgument, "the node's ID is missing")
	}
	if err := checkCapabilities([]*csiapi.VolumeCapability{r.GetVolumeCapability()}); err != nil {
		return nil, err
	}
	v, err := d.load(r.GetVolumeId())
	switch {
	case err != nil:
		return nil, err
	case r.GetNodeId() != d.cfg.NodeID:
		return nil, status.Errorf(codes.NotFound, "no node %q", r.GetNodeId())
	case v.Node != "" && v.ReadOnly != r.GetReadonly():
		return nil, status.Errorf(codes.AlreadyExists, "volume %q is attached otherwise", v.ID)
	}
	v.Node, v.ReadOnly = r.GetNodeId(), r.GetReadonly()
	return &csiapi.ControllerPublishVolumeResponse{
		PublishContext: map[string]string{"attached": "to " + v.Node},
	}, d.save(v)
}

// ControllerUnpublishVolume is CSI's.
func (d *Driver) ControllerUnpublishVolume(_ context.Context, r *csiapi.ControllerUnpublishVolumeRequest,
) (*csiapi.ControllerUnpublishVolumeResponse, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	answer := &csiapi.ControllerUnpublishVolumeResponse{}
	v, err := d.load(r.GetVolumeId())
	if status.Code(err) == codes.NotFound {
		return answer, nil
	}
	if err != nil {
		return nil, err
	}
	v.Node, v.ReadOnly = "", false
	return answer, d.save(v)
}

// ValidateVolumeCapabilities is CSI's.
func (d *Driver) ValidateVolumeCapabilities(_ context.Context, r *csiapi.ValidateVolumeCapabilitiesRequest,
) (*csiapi.ValidateVolumeCapabilitiesResponse, error) {
	if err := checkCapabilities(r.GetVolumeCapabilities()); err != nil {
		return nil, err
	}
	if _, err := d.load(r.GetVolumeId()); err != nil {
		return nil, err
	}
	return &csiapi.ValidateVolumeCapabilitiesResponse{
		Confirmed: &csiapi.ValidateVolumeCapabilitiesResponse_Confirmed{
			VolumeCapabilities: r.GetVolumeCapabilities(), VolumeContext: r.GetVolumeContext(), Parameters: r.GetParameters(),
		},
	}, nil
}

// ListVolumes is CSI's.
func (d *Driver) ListVolumes(_ context.Context, r *csiapi.ListVolumesRequest) (*csiapi.ListVolumesResponse, error) {
	files, err := filepath.Glob(d.record("*"))
	if err != nil {
		return nil, err
	}
	slices.Sort(files)
	first := 0
	if token := r.GetStartingToken(); token != "" {
		if first, err = strconv.Atoi(token); err != nil || first < 0 || first > len(files) {
			return nil, status.Errorf(codes.Aborted, "%q is no token of this driver", token)
		}
	}
	answer, last := &csiapi.ListVolumesResponse{}, len(files)
	if most := int(r.GetMaxEntries()); most > 0 && first+most < last {
		last = first + most
		answer.NextToken = strconv.Itoa(last)
	}
	for _, file := range files[first:last] {
		v, err := d.load(strings.TrimSuffix(filepath.Base(file), ".json"))
		if err != nil {
			return nil, err
		}
		answer.Entries = append(answer.Entries, &csiapi.ListVolumesResponse_Entry{
			Volume: &csiapi.Volume{VolumeId: v.ID, CapacityBytes: v.Bytes},
		})
	}
	return answer, nil
}

// GetCapacity is CSI's.
func (d *Driver) GetCapacity(context.Context, *csiapi.GetCapacityRequest) (*csiapi.GetCapacityResponse, error) {
	return &csiapi.GetCapacityResponse{AvailableCapacity: maxBytes, MaximumVolumeSize: wrapperspb.Int64(maxBytes)}, nil
}

// ControllerExpandVolume is CSI's. The node has the rest to do.
func (d *Driver) ControllerExpandVolume(_ context.Context, r *csiapi.ControllerExpandVolumeRequest,
) (*csiapi.ControllerExpandVolumeResponse, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	v, err := d.load(r.GetVolumeId())
	if err != nil {
		return nil, err
	}
	size := r.GetCapacityRange().GetRequiredBytes()
	if size <= 0 || size > maxBytes {
		return nil, status.Errorf(codes.OutOfRange, "a volume can't have %d bytes", size)
	}
	if size > v.Bytes {
		v.Bytes = size
		if err := errors.Join(os.Truncate(d.image(v.ID), size), d.save(v)); err != nil {
			return nil, err
		}
	}
	return &csiapi.ControllerExpandVolumeResponse{CapacityBytes: v.Bytes, NodeExpansionRequired: true}, nil
}

func checkCapabilities(list []*csiapi.VolumeCapability) error {
	if len(list) == 0 {
		return status.Error(codes.InvalidArgument, "the volume's capabilities are missing")
	}
	for _, c := range list {
		if c.GetMount() == nil && c.GetBlock() == nil {
			return status.Error(codes.InvalidArgument, "a capability is neither mount nor block")
		}
		if t := c.GetMount().GetFsType(); t != "" && t != ext4 && t != xfs {
			return status.Errorf(codes.InvalidArgument, "there is no filesystem %q", t)
		}
	}
	return nil
}
