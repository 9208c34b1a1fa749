package crash

import (
	"encoding/base64"
	"errors"
	"fmt"
	"testing"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"kubelot.dev/test/e2e/kit"
	"kubelot.dev/test/testbed/images"
	"kubelot.dev/test/testbed/registry"
)

// TestKilledAmidAPull kills podsync while it pulls an image with a secret, for a pod that goes away meanwhile. The
// runtime ends the pull by itself, and nobody has seen it: the image is for those that can show the secret all the
// same.
func TestKilledAmidAPull(t *testing.T) {
	r, err := registry.Start()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if err := bed.CRI.UseRegistry(r.Addr, false); err != nil {
		t.Fatal(err)
	}
	img, err := images.Variant(bed.Busybox, "docker.io/private/app:1", "private")
	if err != nil {
		t.Fatal(err)
	}
	ref, err := r.Push(t.Context(), img)
	if err != nil {
		t.Fatal(err)
	}
	r.Require("somebody", "pass:word")
	r.Delay(time.Second)

	ns := bed.Namespace(t)
	auth := base64.StdEncoding.EncodeToString([]byte("somebody:pass:word"))
	ns.Apply(fmt.Sprintf("{apiVersion: v1, kind: Secret, metadata: {name: login}, type: kubernetes.io/dockerconfigjson, "+
		"stringData: {.dockerconfigjson: '{\"auths\":{%q:{\"auth\":%q}}}'}}", r.Addr, auth))
	enter := func(name, policy, more string) {
		ns.Apply(fmt.Sprintf("apiVersion: v1\nkind: Pod\nmetadata: {name: %s}\nspec:\n  terminationGracePeriodSeconds: 0\n"+
			"  containers: [{name: app, image: %q, imagePullPolicy: %s, command: [sleep, \"1000000\"]}]\n%s", name,
			ref, policy, more))
	}
	const login = "  imagePullSecrets: [{name: login}]\n"
	enter("owner", "IfNotPresent", login)
	kit.Eventually(t, "the pull", func() error {
		if r.Pulls() == 0 {
			return errors.New("nobody has asked for the image")
		}
		return nil
	})
	kill(t, bed, "podsync")
	ns.Delete("owner", 0)
	kit.Eventually(t, "the image", func() error {
		got, err := bed.CRI.Images().ImageStatus(t.Context(),
			&runtimeapi.ImageStatusRequest{Image: &runtimeapi.ImageSpec{Image: ref}})
		if err == nil && got.GetImage() == nil {
			err = errors.New("it isn't there")
		}
		return err
	})
	r.Delay(0)

	enter("never", "Never", "")
	ns.Waiting("never", "app", "ErrImageNeverPull")
	enter("without", "IfNotPresent", "")
	ns.Waiting("without", "app", "ImagePullBackOff")
	// That somebody's pull has failed tells nothing of the first.
	enter("later", "Never", "")
	ns.Waiting("later", "app", "ErrImageNeverPull")
	enter("friend", "IfNotPresent", login)
	ns.Running("friend")
	enter("last", "Never", login)
	ns.Running("last")
}
