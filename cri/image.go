package cri

import (
	"context"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// ListImages lists the images that match filter; nil means all.
func (c *Client) ListImages(ctx context.Context, filter *runtimeapi.ImageFilter) ([]*runtimeapi.Image, error) {
	op := operation{name: "ListImages", metric: "list_images", endpoint: c.images.endpoint}
	resp, err := do(ctx, c, op, c.images.ListImages, &runtimeapi.ListImagesRequest{Filter: filter})
	return resp.GetImages(), err
}

// ImageStatus reads one image; nil without an error means that the runtime doesn't have it.
func (c *Client) ImageStatus(ctx context.Context, image *runtimeapi.ImageSpec) (*runtimeapi.Image, error) {
	op := operation{name: "ImageStatus", metric: "image_status", object: image.GetImage(), endpoint: c.images.endpoint}
	resp, err := do(ctx, c, op, c.images.ImageStatus, &runtimeapi.ImageStatusRequest{Image: image})
	return resp.GetImage(), err
}

// PullImage pulls an image and returns the reference under which the runtime knows it. auth may be
// nil. It takes as long as it takes, until ctx ends.
func (c *Client) PullImage(ctx context.Context, image *runtimeapi.ImageSpec, auth *runtimeapi.AuthConfig,
	sandbox *runtimeapi.PodSandboxConfig,
) (ref string, err error) {
	op := operation{
		name: "PullImage", metric: "pull_image", object: image.GetImage(),
		endpoint: c.images.endpoint, timeout: -1,
	}
	resp, err := do(ctx, c, op, c.images.PullImage,
		&runtimeapi.PullImageRequest{Image: image, Auth: auth, SandboxConfig: sandbox})
	return resp.GetImageRef(), err
}

// RemoveImage removes an image. It may be repeated.
func (c *Client) RemoveImage(ctx context.Context, image *runtimeapi.ImageSpec) error {
	op := operation{name: "RemoveImage", metric: "remove_image", object: image.GetImage(), endpoint: c.images.endpoint}
	_, err := do(ctx, c, op, c.images.RemoveImage, &runtimeapi.RemoveImageRequest{Image: image})
	return err
}

// ImageFsInfo reads the usage of the filesystems that hold images and containers.
func (c *Client) ImageFsInfo(ctx context.Context) (*runtimeapi.ImageFsInfoResponse, error) {
	op := operation{name: "ImageFsInfo", metric: "image_fs_info", endpoint: c.images.endpoint}
	return do(ctx, c, op, c.images.ImageFsInfo, &runtimeapi.ImageFsInfoRequest{})
}
