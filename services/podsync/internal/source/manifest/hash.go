package manifest

import (
	"bufio"
	"encoding/hex"
	"fmt"
	"hash/fnv"
	"io"
	"reflect"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
)

// uid is the UID that the kubelet derives for a static pod without one: FNV-1a over a dump of its own, internal Pod
// type, then the place of the manifest. Since containers carry the UID as a label, an agent that computes another
// one restarts every static pod.
func uid(pod *corev1.Pod, from Origin) string {
	h := fnv.New128a()
	w := bufio.NewWriterSize(h, 4<<10)
	dump(w, pod)
	if from.File != "" {
		fmt.Fprintf(w, "host:%s", from.NodeName)
		fmt.Fprintf(w, "file:%s", from.File)
	} else {
		fmt.Fprintf(w, "url:%s", from.URL)
	}
	w.Flush() //nolint:errcheck // a hash never fails
	return hex.EncodeToString(h.Sum(nil))
}

const coreV1 = "k8s.io/api/core/v1"

// layouts are the types whose internal form has other fields, or the same in another order. The host
// namespaces are among the fields of the internal security context.
var layouts = map[reflect.Type][]string{
	reflect.TypeFor[corev1.PodSpec](): {
		"Volumes", "InitContainers", "Containers", "EphemeralContainers", "RestartPolicy",
		"TerminationGracePeriodSeconds", "ActiveDeadlineSeconds", "DNSPolicy", "NodeSelector", "ServiceAccountName",
		"AutomountServiceAccountToken", "NodeName", "SecurityContext", "ImagePullSecrets", "Hostname", "Subdomain",
		"SetHostnameAsFQDN", "Affinity", "SchedulerName", "Tolerations", "HostAliases", "PriorityClassName", "Priority",
		"PreemptionPolicy", "DNSConfig", "ReadinessGates", "RuntimeClassName", "Overhead", "EnableServiceLinks",
		"TopologySpreadConstraints", "OS", "SchedulingGates", "ResourceClaims", "Resources", "HostnameOverride",
		"SchedulingGroup",
	},
	reflect.TypeFor[corev1.PodSecurityContext](): {
		"HostNetwork", "HostPID", "HostIPC", "ShareProcessNamespace", "HostUsers", "SELinuxOptions", "WindowsOptions",
		"RunAsUser", "RunAsGroup", "RunAsNonRoot", "SupplementalGroups", "SupplementalGroupsPolicy", "FSGroup",
		"FSGroupChangePolicy", "Sysctls", "SeccompProfile", "AppArmorProfile", "SELinuxChangePolicy",
	},
	reflect.TypeFor[corev1.VolumeSource](): {
		"HostPath", "EmptyDir", "GCEPersistentDisk", "AWSElasticBlockStore", "GitRepo", "Secret", "NFS", "ISCSI",
		"Glusterfs", "PersistentVolumeClaim", "RBD", "Quobyte", "FlexVolume", "Cinder", "CephFS", "Flocker",
		"DownwardAPI", "FC", "AzureFile", "ConfigMap", "VsphereVolume", "AzureDisk", "PhotonPersistentDisk",
		"Projected", "PortworxVolume", "ScaleIO", "StorageOS", "CSI", "Ephemeral", "Image",
	},
	reflect.TypeFor[corev1.PodStatus](): {
		"ObservedGeneration", "Phase", "Conditions", "Message", "Reason", "NominatedNodeName", "HostIP", "HostIPs",
		"PodIPs", "StartTime", "QOSClass", "InitContainerStatuses", "ContainerStatuses", "EphemeralContainerStatuses",
		"Resize", "ResourceClaimStatuses", "ExtendedResourceClaimStatus", "AllocatedResources", "Resources",
		"NodeAllocatableResourceClaimStatuses",
	},
}

// dump writes the pod as the kubelet's dump (package spew, verb %#v, sorted keys, no methods) writes its internal form.
func dump(w io.Writer, pod *corev1.Pod) {
	// The internal form has no kind and version: the API's decoder drops them.
	p := *pod
	p.Kind, p.APIVersion = "", ""
	d := dumper{w: w, spec: reflect.ValueOf(&p.Spec).Elem()}
	d.value(reflect.ValueOf(&p), true)
}

// dumper walks a pod. It only reads, so it can read unexported fields (those of a quantity) too.
type dumper struct {
	w    io.Writer
	spec reflect.Value
}

func (d *dumper) print(s string) { io.WriteString(d.w, s) } //nolint:errcheck // a hash never fails

// value writes v, after its type if typed is set.
func (d *dumper) value(v reflect.Value, typed bool) {
	if v.Kind() == reflect.Pointer {
		d.pointer(v, typed)
		return
	}
	if typed {
		d.print("(" + typeName(v.Type()) + ")")
	}
	switch v.Kind() {
	case reflect.Bool:
		d.print(strconv.FormatBool(v.Bool()))
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		d.print(strconv.FormatInt(v.Int(), 10))
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		d.print(strconv.FormatUint(v.Uint(), 10))
	case reflect.String:
		d.print(v.String())
	case reflect.Slice:
		d.slice(v)
	case reflect.Map:
		d.mapping(v)
	case reflect.Struct:
		d.structure(v)
	}
}

func (d *dumper) pointer(v reflect.Value, typed bool) {
	switch {
	case typed && v.IsNil():
		d.print("(" + typeName(v.Type()) + ")<nil>")
	case typed:
		d.print("(*" + typeName(v.Type().Elem()) + ")")
		d.value(v.Elem(), false)
	case v.IsNil():
		d.print("<nil>")
	default:
		d.print("<*>")
		d.value(v.Elem(), false)
	}
}

func (d *dumper) slice(v reflect.Value) {
	if v.IsNil() {
		d.print("<nil>")
		return
	}
	d.print("[")
	for i := range v.Len() {
		if i > 0 {
			d.print(" ")
		}
		d.value(v.Index(i), false)
	}
	d.print("]")
}

func (d *dumper) mapping(v reflect.Value) {
	if v.IsNil() {
		d.print("<nil>")
		return
	}
	keys := v.MapKeys()
	slices.SortFunc(keys, func(a, b reflect.Value) int {
		if a.String() < b.String() {
			return -1
		}
		return 1
	})
	d.print("map[")
	for i, k := range keys {
		if i > 0 {
			d.print(" ")
		}
		d.value(k, false)
		d.print(":")
		d.value(v.MapIndex(k), false)
	}
	d.print("]")
}

func (d *dumper) structure(v reflect.Value) {
	d.print("{")
	names, other := layouts[v.Type()]
	if !other {
		for i := range v.NumField() {
			names = append(names, v.Type().Field(i).Name)
		}
	}
	for i, name := range names {
		if i > 0 {
			d.print(" ")
		}
		f := v.FieldByName(name)
		if !f.IsValid() {
			f = d.spec.FieldByName(name)
		}
		d.print(name + ":")
		d.value(f, true)
	}
	d.print("}")
}

// typeName is the name that the type has if the types of the core group are in a package named core.
func typeName(t reflect.Type) string {
	switch {
	case t.Name() != "" && t.PkgPath() == coreV1:
		return "core." + t.Name()
	case t.Name() != "":
		return t.String()
	case t.Kind() == reflect.Pointer:
		return "*" + typeName(t.Elem())
	case t.Kind() == reflect.Slice:
		return "[]" + typeName(t.Elem())
	case t.Kind() == reflect.Map:
		return "map[" + typeName(t.Key()) + "]" + typeName(t.Elem())
	}
	return t.String()
}
