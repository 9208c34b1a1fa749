package topic

import "time"

// VolumePhase is how far a volume is.
type VolumePhase string

const (
	// VolumePending volumes are being set up.
	VolumePending VolumePhase = "pending"
	// VolumeMounted volumes are usable at their HostPath.
	VolumeMounted VolumePhase = "mounted"
	// VolumeFailed volumes could not be set up; it is tried again.
	VolumeFailed VolumePhase = "failed"
	// VolumeUnmounted volumes have left nothing behind.
	VolumeUnmounted VolumePhase = "unmounted"
)

// PodVolumes is the payload of volume.state.
type PodVolumes struct {
	Ref
	// Phase is the worst of the volumes': mounted only when all are mounted, unmounted only when all are.
	Phase VolumePhase `json:"phase"`
	// Volumes is keyed by the volume's name in the pod spec.
	Volumes map[string]Volume `json:"volumes"`
}

// Volume is one volume of a pod.
type Volume struct {
	Phase VolumePhase `json:"phase"`
	// HostPath is where the volume is on the host; empty for an image volume, which the runtime mounts, and
	// for a block device.
	HostPath string `json:"hostPath,omitempty"`
	// Device is the link to the block device that containers get as a device (volumeDevices), instead of a HostPath.
	Device string `json:"device,omitempty"`
	// PersistentVolume is the name of the persistent volume behind a claim.
	PersistentVolume string `json:"persistentVolume,omitempty"`
	// Image is the reference of an image volume, which podsync pulls and hands to the runtime.
	Image string `json:"image,omitempty"`
	// ReadOnly is true where the volume's source itself is read-only.
	ReadOnly bool `json:"readOnly,omitempty"`
	// SELinuxRelabel tells the runtime to relabel the files.
	SELinuxRelabel bool `json:"seLinuxRelabel,omitempty"`
	// HostIDs is true where the files of a pod in a user namespace belong to the pod's own IDs on the host, because the
	// kernel can't map the IDs of their filesystem: the runtime gets no ID mapping for them.
	HostIDs bool `json:"hostIDs,omitempty"`
	// SupplementalGroup is a group that containers need to use the volume.
	SupplementalGroup *int64 `json:"supplementalGroup,omitempty"`
	// Measured is true where volume.usage says how full the volume is.
	Measured bool `json:"measured,omitempty"`
	// Size is the capacity of the persistent volume as it was last followed on this node, for one that may grow on other
	// nodes; empty if it isn't known.
	Size string `json:"size,omitempty"`
	// Doing is the call that a CSI driver has not answered for long, or what its attacher is waited for; nil for none.
	Doing *DriverCall `json:"doing,omitempty"`
	// Reason and Message say why a volume is pending or failed; the reason is one of the kubelet's
	// event reasons, such as FailedMount.
	Reason  string `json:"reason,omitempty"`
	Message string `json:"message,omitempty"`
}

// DriverCall is what a CSI driver is at.
type DriverCall struct {
	Driver string `json:"driver"`
	// Call is the method, such as NodeStageVolume, or CallAttach.
	Call  string    `json:"call"`
	Since time.Time `json:"since"`
	// Pod is the other pod, as NAMESPACE/NAME, for which the driver is at it, where a volume waits for that; empty for
	// the volume's own calls and for those that are for no pod.
	Pod string `json:"pod,omitempty"`
}

// CallAttach is the attachment of a volume, on which the attach-detach controller and the driver's attacher work.
const CallAttach = "attach"

// SubPathRequest is the request of volume.subpath.
type SubPathRequest struct {
	Ref
	Container string `json:"container"`
	// Mounts are the container's mounts that have a subPath, already expanded.
	Mounts []SubPath `json:"mounts"`
}

// SubPath is one mount with a subPath.
type SubPath struct {
	// Index is the mount's position in the container's volumeMounts.
	Index    int    `json:"index"`
	Volume   string `json:"volume"`
	SubPath  string `json:"subPath"`
	ReadOnly bool   `json:"readOnly,omitempty"`
}

// SubPathReply answers volume.subpath.
type SubPathReply struct {
	// Paths are the host paths by the mount's index.
	Paths map[int]string `json:"paths"`
}

// VolumeUsageRequest is the request of volume.usage.
type VolumeUsageRequest struct {
	Ref
	// Volume is its name in the pod's spec.
	Volume string `json:"volume"`
}

// VolumeUsageReply answers volume.usage. What the driver doesn't say is empty.
type VolumeUsageReply struct {
	Bytes  VolumeAmount `json:"bytes"`
	Inodes VolumeAmount `json:"inodes"`
}

// VolumeAmount is how much of something a volume has; none of it is negative.
type VolumeAmount struct {
	Total     int64 `json:"total"`
	Available int64 `json:"available"`
	Used      int64 `json:"used"`
}
