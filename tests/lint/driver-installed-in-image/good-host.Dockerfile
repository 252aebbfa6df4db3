# An operating system in the form of an image: it is booted on the host, where the driver belongs.
FROM quay.io/fedora/fedora-bootc:41
RUN dnf install -y nvidia-driver nvidia-container-toolkit
