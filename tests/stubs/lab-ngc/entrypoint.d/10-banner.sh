echo
echo "============="
echo "== $NVIDIA_PRODUCT_NAME =="
echo "============="
echo
echo "NVIDIA Release $NVIDIA_PYTORCH_VERSION (build $NVIDIA_BUILD_ID)"
