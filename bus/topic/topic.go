// Package topic lists every topic of the bus: its subject, its payload and who keys it.
// There are no subject strings outside it. Fields are only ever added to the payloads.
package topic

import (
	corev1 "k8s.io/api/core/v1"
	statsv1alpha1 "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"kubelot.dev/bus"
)

// State topics written by podsync.
var (
	// PodUpdate is a pod as admitted to this node, and how far its worker is.
	PodUpdate = bus.NewState[Pod](bus.Spec{
		Name: "pod.update", Keys: "<uid>", Schema: 1,
		Doc: "The pod as admitted: its source and its lifecycle (syncing, terminating, terminated).",
	}).Checked(checkPod)
	// PodObject is what the API server has of a pod's status. It isn't part of pod.update, because it changes with each of
	// the node's own writes, and most daemons don't need it.
	PodObject = bus.NewState[APIPod](bus.Spec{
		Name: "pod.object", Keys: "<uid>", Schema: 1,
		Doc: "The status that the API server has of its pod, with the resource version.",
	}).Checked(checkObject)
	// PodMirror is a mirror pod as the API server has it.
	PodMirror = bus.NewState[MirrorPod](bus.Spec{
		Name: "pod.mirror", Keys: "<uid>", Schema: 1,
		Doc: "A mirror pod that exists at the API server, keyed by the mirror pod's own UID.",
	}).Checked(checkMirror)
	// PodSources reports whether every pod source has been read once.
	PodSources = bus.NewState[Sources](bus.Spec{
		Name: "pod.sources", Schema: 1,
		Doc: "Whether all pod sources have delivered. Until then no daemon removes pods that look unwanted.",
	})
	// StatusPatch is the pod status that podsync computed.
	StatusPatch = bus.NewState[PodStatus](bus.Spec{
		Name: "status.patch", Keys: "<uid>", Schema: 1,
		Doc: "The computed pod status, and whether the pod is finished for good.",
	}).Checked(checkStatus)
)

// State topics written by the other daemons.
var (
	// MergedStatus is the pod's whole status, readiness and conditions included.
	MergedStatus = bus.NewState[Merged](bus.Spec{
		Name: "pod.status", Keys: "<uid>", Schema: 1,
		Doc: "The pod status as merged from podsync's, the probes' verdicts and the API server's copy.",
	}).Checked(checkMerged)
	// PLEGEvent is what the runtime says of one pod.
	PLEGEvent = bus.NewState[PodObservation](bus.Spec{
		Name: "pleg.event", Keys: "<uid>", Schema: 1,
		Doc: "Every sandbox and container of the pod as the runtime reports it.",
	}).Checked(checkObservation)
	// NodeRuntime is the runtime's identity and health.
	NodeRuntime = bus.NewState[Runtime](bus.Spec{
		Name: "node.runtime", Schema: 1,
		Doc: "The container runtime: name, version, conditions, handlers.",
	}).Checked(checkRuntime)
	// VolumeState says which volumes of a pod are usable and where.
	VolumeState = bus.NewState[PodVolumes](bus.Spec{
		Name: "volume.state", Keys: "<uid>", Schema: 1,
		Doc: "The pod's volumes: pending, mounted, failed or unmounted, with paths and reasons.",
	}).Checked(checkVolumes)
	// ProbeResult is the last verdict of one probe on one container.
	ProbeResult = bus.NewState[Probe](bus.Spec{
		Name: "probe.result", Keys: "<uid>.<container>.<kind>", Schema: 1,
		Doc: "A probe's verdict for a container ID.",
	}).Checked(checkProbe)
	// NodeMachine are the machine's facts.
	NodeMachine = bus.NewState[Machine](bus.Spec{
		Name: "node.machine", Schema: 1,
		Doc: "What the machine is: cores, memory, disks, identifiers, kernel and operating system.",
	}).Checked(checkMachine)
	// PluginRegistered is a plugin of the node that can be used.
	PluginRegistered = bus.NewState[Plugin](bus.Spec{
		Name: "plugin.registered", Keys: "<type>.<name>", Schema: 1,
		Doc: "A CSI driver, DRA driver or device plugin that has registered: its endpoint and versions.",
	}).Checked(checkPlugin)
	// CSIDriver is what a CSI driver says of this node.
	CSIDriver = bus.NewState[CSINodeInfo](bus.Spec{
		Name: "csi.driver", Keys: "<name>", Schema: 1,
		Doc: "A registered CSI driver's name of the node, its topology and its limit of volumes.",
	}).Checked(checkCSINodeInfo)
	// CSIVolumes are the attachable volumes that the node has or is about to have.
	CSIVolumes = bus.NewState[VolumesInUse](bus.Spec{
		Name: "csi.volumes", Schema: 1,
		Doc: "The volumes for the Node's status.volumesInUse; absent until what is on disk has been read.",
	}).Checked(checkVolumesInUse)
	// PodAllocation is what a pod has for itself of the node's devices, CPUs and memory.
	PodAllocation = bus.NewState[Allocation](bus.Spec{
		Name: "pod.allocation", Keys: "<uid>", Schema: 1,
		Doc: "A pod's devices, exclusive CPUs, memory nodes and claims: what it has, waits for, or can't have.",
	}).Checked(checkAllocation)
	// ResourcesOfNode are the node's devices and shared CPUs.
	ResourcesOfNode = bus.NewState[NodeResources](bus.Spec{
		Name: "node.resources", Schema: 1,
		Doc: "The devices of plugins, for the Node's capacity and allocatable, and the CPUs that containers share.",
	}).Checked(checkNodeResources)
	// NodeObject is the Node as the API server has it, or as this node would register itself.
	NodeObject = bus.NewState[corev1.Node](bus.Spec{
		Name: "node.object", Schema: 1,
		Doc: "The Node object: from the API server, or as computed where there is none.",
	}).Checked(checkNode)
	// NodePressure are the eviction signals that are over their threshold.
	NodePressure = bus.NewState[Pressure](bus.Spec{
		Name: "node.pressure", Schema: 1,
		Doc: "Memory, disk and pid pressure of the node.",
	}).Checked(checkPressure)
	// NodeShutdown is how far a shutdown of the node is.
	NodeShutdown = bus.NewState[Shutdown](bus.Spec{
		Name: "node.shutdown", Schema: 1,
		Doc: "Whether the node shuts down, and which group of pods ends now.",
	}).Checked(checkShutdown)
	// Health is how one daemon does.
	Health = bus.NewState[DaemonHealth](bus.Spec{
		Name: "health", Keys: "<daemon>", Schema: 1, PerDaemon: true,
		Doc: "A daemon's health, version and process.",
	}).Checked(checkHealth)
)

// Event topics.
var (
	// PodStep is one step of a pod's worker.
	PodStep = bus.NewEvent[Step](bus.Spec{
		Name: "podsync.step", Keys: "<uid>", Schema: 1,
		Doc: "A step of a pod's worker: its end with error and duration, and its begin once it has taken a second.",
	})
	// GCDecision is something that gc removed, evicted or left alone, and why.
	GCDecision = bus.NewEvent[Decision](bus.Spec{
		Name: "gc.decision", Schema: 1,
		Doc: "What gc removed, evicted, rotated or kept, with the figures behind the decision.",
	}).Checked(checkDecision)
	// KubeEvent is a Kubernetes Event to record.
	KubeEvent = bus.NewEvent[Event](bus.Spec{
		Name: "event", Keys: "<daemon>", Schema: 1, PerDaemon: true,
		Doc: "A Kubernetes Event that the status daemon records at the API server.",
	}).Checked(checkEvent)
)

// Calls.
var (
	// VolumeSubPath asks the volume daemon for the host paths of a container's subPath mounts.
	VolumeSubPath = bus.NewCall[SubPathRequest, SubPathReply](bus.Spec{
		Name: "volume.subpath", Schema: 1,
		Doc: "Binds a container's subPath mounts and answers with their host paths.",
	})
	// VolumeUsage asks the volume daemon how full a volume is whose driver knows that.
	VolumeUsage = bus.NewCall[VolumeUsageRequest, VolumeUsageReply](bus.Spec{
		Name: "volume.usage", Schema: 1,
		Doc: "How full a pod's volume is, by its CSI driver.",
	})
	// ResourcePreStart asks the resource daemon to have a container's devices made ready for its start.
	ResourcePreStart = bus.NewCall[PreStartRequest, PreStartReply](bus.Spec{
		Name: "resource.prestart", Schema: 1,
		Doc: "Has device plugins make a container's devices ready; answers when they are.",
	})
	// ResourceClaims asks which ResourceClaims the node knows.
	ResourceClaims = bus.NewCall[ClaimsRequest, ClaimsReply](bus.Spec{
		Name: "resource.claims", Schema: 1,
		Doc: "The ResourceClaims that pods of this node have, or whose drivers have not given them back; changes nothing.",
	})
	// ResourceForget gives up waiting for the drivers of a claim that are gone for good.
	ResourceForget = bus.NewCall[ForgetRequest, ForgetReply](bus.Spec{
		Name: "resource.forget", Schema: 1,
		Doc: "Ends the wait for drivers that are gone and have not given back a claim whose pods have ended.",
	})
	// PodEvict ends a pod as Failed.
	PodEvict = bus.NewCall[Eviction, EvictionReply](bus.Spec{
		Name: "pod.evict", Schema: 1,
		Doc: "Ends a pod as Failed with a reason and a message; answers once its end is decided, not when it is over.",
	})
	// PodRetry ends the back-offs of a pod.
	PodRetry = bus.NewCall[Retry, RetryReply](bus.Spec{
		Name: "pod.retry", Schema: 1,
		Doc: "Ends the back-offs of a pod or of one of its containers; answers with those that were ended.",
	})
	// ManifestCheck asks what podsync would make of a manifest.
	ManifestCheck = bus.NewCall[ManifestRequest, ManifestReply](bus.Spec{
		Name: "manifest.check", Schema: 1,
		Doc: "The static pod that podsync would make of a manifest, or why it can't use it. The call changes nothing.",
	})
	// StatusUnwritten asks which pods' last statuses the API server lacks.
	StatusUnwritten = bus.NewCall[UnwrittenRequest, UnwrittenReply](bus.Spec{
		Name: "status.unwritten", Schema: 1,
		Doc: "Names the pods that have not ended or whose last status the API server doesn't have yet; answers at once.",
	})
	// ShutdownRequested starts or cancels a shutdown of the node.
	ShutdownRequested = bus.NewCall[ShutdownRequest, Shutdown](bus.Spec{
		Name: "shutdown.request", Schema: 1,
		Doc: "Starts or cancels a shutdown of the node; answers with its state at once, not when it is over.",
	})
	// StatsSummary reads the usage of the node and its pods.
	StatsSummary = bus.NewCall[SummaryRequest, statsv1alpha1.Summary](bus.Spec{
		Name: "stats.summary", Schema: 1,
		Doc: "The usage of the node, its pods, containers, volumes and filesystems, as the kubelet's summary API reports it.",
	})
	// GCPlan asks what gc would remove at this moment.
	GCPlan = bus.NewCall[GCPlanRequest, GCPlanReply](bus.Spec{
		Name: "gc.plan", Schema: 1,
		Doc: "What gc would remove or evict now, and what it keeps, each with the reason. The call changes nothing.",
	})
)

// All are all topics, in the order in which documents list them.
func All() []bus.Topic {
	return []bus.Topic{
		PodUpdate, PodObject, PodMirror, PodSources, PodStep, PLEGEvent, VolumeState, PodAllocation, PluginRegistered,
		CSIDriver, CSIVolumes, ProbeResult,
		StatusPatch, MergedStatus, GCDecision, KubeEvent,
		NodeMachine, NodeRuntime, NodeObject, ResourcesOfNode, NodePressure, NodeShutdown, Health,
		VolumeSubPath, VolumeUsage, ResourcePreStart, ResourceClaims, ResourceForget, PodEvict, PodRetry,
		ManifestCheck, StatusUnwritten, StatsSummary, GCPlan, ShutdownRequested,
	}
}
