// Package labels has the labels and annotations with which the kubelet marks sandboxes and
// containers. Using the same ones is what lets kubelot take over a node from a kubelet, and hand it back,
// with no container restarted.
package labels

import (
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"maps"
	"strconv"

	corev1 "k8s.io/api/core/v1"

	"kubelot.dev/bus/topic"
)

// Labels of sandboxes and containers.
const (
	PodName       = "io.kubernetes.pod.name"
	PodNamespace  = "io.kubernetes.pod.namespace"
	PodUID        = "io.kubernetes.pod.uid"
	ContainerName = "io.kubernetes.container.name" // containers only
)

// Annotations of containers.
const (
	Hash                      = "io.kubernetes.container.hash"
	RestartCount              = "io.kubernetes.container.restartCount"
	TerminationMessagePath    = "io.kubernetes.container.terminationMessagePath"
	TerminationMessagePolicy  = "io.kubernetes.container.terminationMessagePolicy"
	PreStopHandler            = "io.kubernetes.container.preStopHandler"
	Ports                     = "io.kubernetes.container.ports"
	PodDeletionGracePeriod    = "io.kubernetes.pod.deletionGracePeriod"
	PodTerminationGracePeriod = "io.kubernetes.pod.terminationGracePeriod"
)

// Sandbox are the labels of a pod's sandbox: the pod's own, and who it is.
func Sandbox(pod *corev1.Pod) map[string]string {
	labels := make(map[string]string, len(pod.Labels)+3)
	maps.Copy(labels, pod.Labels)
	labels[PodName] = pod.Name
	labels[PodNamespace] = pod.Namespace
	labels[PodUID] = string(pod.UID)
	return labels
}

// Container are the labels of one container of the pod, of any kind (init, regular, ephemeral).
func Container(pod *corev1.Pod, container string) map[string]string {
	return map[string]string{
		PodName:       pod.Name,
		PodNamespace:  pod.Namespace,
		PodUID:        string(pod.UID),
		ContainerName: container,
	}
}

// ContainerAnnotations are the annotations of a container. extra are annotations from elsewhere, such as
// device plugins; the kubelet's own win.
func ContainerAnnotations(pod *corev1.Pod, container *corev1.Container, restartCount int,
	extra map[string]string,
) map[string]string {
	annotations := make(map[string]string, len(extra)+8)
	maps.Copy(annotations, extra)
	annotations[Hash] = ContainerHash(container)
	annotations[RestartCount] = strconv.Itoa(restartCount)
	annotations[TerminationMessagePath] = container.TerminationMessagePath
	annotations[TerminationMessagePolicy] = string(container.TerminationMessagePolicy)
	if seconds := pod.DeletionGracePeriodSeconds; seconds != nil {
		annotations[PodDeletionGracePeriod] = strconv.FormatInt(*seconds, 10)
	}
	if seconds := pod.Spec.TerminationGracePeriodSeconds; seconds != nil {
		annotations[PodTerminationGracePeriod] = strconv.FormatInt(*seconds, 10)
	}
	if container.Lifecycle != nil && container.Lifecycle.PreStop != nil {
		setJSON(annotations, PreStopHandler, container.Lifecycle.PreStop)
	}
	if len(container.Ports) > 0 {
		setJSON(annotations, Ports, container.Ports)
	}
	return annotations
}

// setJSON sets an annotation to v's JSON. API types always have one; if not, the annotation is left out.
func setJSON(annotations map[string]string, name string, v any) {
	if data, err := json.Marshal(v); err == nil {
		annotations[name] = string(data)
	}
}

// ContainerHash is the kubelet's hash of a container (Kubernetes 1.31 and later: over its image and name
// only), as the annotation has it: hexadecimal without leading zeros. A container whose hash isn't that of its spec is
// restarted.
func ContainerHash(container *corev1.Container) string {
	// Maps are marshalled with sorted keys, and strings can't fail.
	data, _ := json.Marshal(map[string]string{"name": container.Name, "image": container.Image})
	hash := fnv.New32a()
	// The kubelet hashes not the bytes but their dump by go-spew, which looks like this.
	fmt.Fprintf(hash, "([]uint8)%v", data)
	return strconv.FormatUint(uint64(hash.Sum32()), 16)
}

// Selector are the labels that all sandboxes and containers of a pod have.
func Selector(uid string) map[string]string { return map[string]string{PodUID: uid} }

// Pod names the pod to which a sandbox or container with these labels belongs; empty fields where they don't say.
func Pod(labels map[string]string) topic.Ref {
	return topic.Ref{Namespace: labels[PodNamespace], Name: labels[PodName], UID: labels[PodUID]}
}

// ContainerInfo is what the annotations tell about a container.
type ContainerInfo struct {
	// Hash is in the form of ContainerHash; empty where there is none or it isn't a hexadecimal number.
	Hash                     string
	RestartCount             int
	TerminationMessagePath   string
	TerminationMessagePolicy corev1.TerminationMessagePolicy
	// DeletionGracePeriod and TerminationGracePeriod are in seconds; nil where the pod had none.
	DeletionGracePeriod    *int64
	TerminationGracePeriod *int64
	PreStop                *corev1.LifecycleHandler
	Ports                  []corev1.ContainerPort
}

// Parse reads a container's annotations. Missing ones are left empty; so are malformed ones, which
// the error names: what could be read is valid nevertheless.
func Parse(annotations map[string]string) (ContainerInfo, error) {
	info := ContainerInfo{
		TerminationMessagePath:   annotations[TerminationMessagePath],
		TerminationMessagePolicy: corev1.TerminationMessagePolicy(annotations[TerminationMessagePolicy]),
	}
	var errs []error
	read := func(name string, parse func(value string) error) {
		value, ok := annotations[name]
		if !ok {
			return
		}
		if err := parse(value); err != nil {
			errs = append(errs, fmt.Errorf("annotation %s is malformed and ignored: %w", name, err))
		}
	}
	read(Hash, func(value string) error {
		hash, err := strconv.ParseUint(value, 16, 64)
		if err == nil {
			info.Hash = strconv.FormatUint(hash, 16)
		}
		return err
	})
	read(RestartCount, func(value string) error {
		count, err := strconv.Atoi(value)
		if err == nil && count < 0 {
			err = fmt.Errorf("%d is negative", count)
		}
		if err == nil {
			info.RestartCount = count
		}
		return err
	})
	read(PodDeletionGracePeriod, seconds(&info.DeletionGracePeriod))
	read(PodTerminationGracePeriod, seconds(&info.TerminationGracePeriod))
	read(PreStopHandler, object(&info.PreStop))
	read(Ports, object(&info.Ports))
	return info, errors.Join(errs...)
}

// seconds parses a number into *target.
func seconds(target **int64) func(string) error {
	return func(value string) error {
		n, err := strconv.ParseInt(value, 10, 64)
		if err == nil {
			*target = &n
		}
		return err
	}
}

// object parses JSON into *target, and leaves that alone when it is malformed.
func object[T any](target *T) func(string) error {
	return func(value string) error {
		var v T
		err := json.Unmarshal([]byte(value), &v)
		if err == nil {
			*target = v
		}
		return err
	}
}
