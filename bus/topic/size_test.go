package topic_test

import (
	"encoding/json"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"kubelot.dev/bus"
	"kubelot.dev/bus/topic"
)

// etcd takes 1.5 MiB of a pod. Some characters take six bytes in JSON.
func TestTheLargestPodFits(t *testing.T) {
	for _, character := range []string{"&", "\x01"} {
		pod := &corev1.Pod{
			Spec: corev1.PodSpec{Containers: []corev1.Container{
				{Env: []corev1.EnvVar{{Value: strings.Repeat(character, 3<<19)}}},
			}},
		}
		data, err := json.Marshal(topic.Pod{Pod: pod})
		if err != nil {
			t.Fatal(err)
		}
		if len(data) > bus.MaxPayload {
			t.Errorf("a pod full of %q has %d bytes on the bus, which takes %d", character, len(data), bus.MaxPayload)
		}
	}
}
