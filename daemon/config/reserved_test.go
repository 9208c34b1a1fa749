package config

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	kubeletv1beta1 "k8s.io/kubelet/config/v1beta1"
)

func TestHeldBack(t *testing.T) {
	capacity := corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("1000")}
	for text, want := range map[string]int64{
		"100": 107, "10%": 107, "0%": 7, "100%": 7, "2.5%": 32, "": 7, "ten": 7, "%": 7, "-5%": 7, "NaN%": 7,
	} {
		k := &kubeletv1beta1.KubeletConfiguration{
			KubeReserved: map[string]string{"memory": "7"}, EvictionHard: map[string]string{signalMemory: text},
		}
		held := HeldBack(k, capacity)
		if got := held[corev1.ResourceMemory]; got.Value() != want {
			t.Errorf("with the threshold %q %s are held back, want %d", text, got.String(), want)
		}
	}
}

func TestReservable(t *testing.T) {
	k := &kubeletv1beta1.KubeletConfiguration{
		KubeReserved: map[string]string{"memory": "600", "cpu": "1"}, SystemReserved: map[string]string{"memory": "300"},
		EvictionHard: map[string]string{signalMemory: "100"},
	}
	capacity := corev1.ResourceList{
		corev1.ResourceMemory: resource.MustParse("1000"), corev1.ResourceCPU: resource.MustParse("1"),
	}
	if err := Reservable(k, capacity); err != nil {
		t.Error(err)
	}
	capacity[corev1.ResourceMemory] = resource.MustParse("999")
	const want = `Resource "memory" has a reservation of 1k but capacity of 999.`
	if err := Reservable(k, capacity); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("%v, want %s", err, want)
	}
}

// The figures are the kubelet's, which counts with a share of 32 bits.
func TestAShareHoldsBackWhatTheKubeletDoes(t *testing.T) {
	capacity := corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("16779730944")}
	for text, want := range map[string]int64{"5%": 838986559, "10%": 1677973119, "25%": 4194932736} {
		held := HeldBack(&kubeletv1beta1.KubeletConfiguration{EvictionHard: map[string]string{signalMemory: text}}, capacity)
		if got := held[corev1.ResourceMemory]; got.Value() != want {
			t.Errorf("%s holds back %d, want %d", text, got.Value(), want)
		}
	}
}
