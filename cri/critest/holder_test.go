package critest

import (
	"context"
	"errors"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func TestNameHolder(t *testing.T) {
	for message, want := range map[string]string{
		`failed to reserve container name "a_b_c_d_0": name "a_b_c_d_0" is reserved for "4f2e"`:                                                     "4f2e",
		`the container name "k8s_a_b" is already in use by 77aa. You have to remove that container to be able to reuse that name: name is reserved`: "77aa",
		`error reserving ctr name k8s_a for id 12: name is reserved`:                                                                                "",
	} {
		fake := Start(t)
		fake.On("RunPodSandbox", func(context.Context, any) error { return status.Error(codes.Unknown, message) })
		_, err := fake.Client(t, 0).RunPodSandbox(t.Context(), &runtimeapi.PodSandboxConfig{}, "")
		if holder, reserved := nameHolder(err); !reserved || holder != want {
			t.Errorf("%q: holder %q, reserved %t; want %q", message, holder, reserved, want)
		}
	}
	for _, err := range []error{errors.New("name is reserved"), nil} {
		if _, reserved := nameHolder(err); reserved {
			t.Errorf("%v counts as a reserved name, though it isn't the runtime's error", err)
		}
	}
}
