# Bakes an image with driver, CUDA, cuDNN and FFmpeg in it, on AWS, Google Cloud or Azure. docs/cloud.md explains it.
#
#   ssh-keygen -q -t rsa -b 3072 -N '' -f build_key
#   packer init .
#   packer build -only='gpuprep.amazon-ebs.builder' -var profile=t4 .
#   rm build_key build_key.pub
#
# gpuprep must be on the PATH of this computer. The builder needs a GPU: gpuprep measures before it says that all is well.

packer {
  # With two numbers: "~> 1" would also take version 2.
  required_plugins {
    amazon = {
      source  = "github.com/hashicorp/amazon"
      version = "~> 1.0"
    }
    googlecompute = {
      source  = "github.com/hashicorp/googlecompute"
      version = "~> 1.0"
    }
    azure = {
      source  = "github.com/hashicorp/azure"
      version = "~> 2.0"
    }
  }
}

variable "profile" {
  type        = string
  default     = "t4"
  description = "A profile of gpuprep, or the path of one."
}

# A key of this build alone. Packer could make one itself, but would give it to provision.sh in a command line, where
# every user of this computer can read it.
variable "key_file" {
  type    = string
  default = "build_key"
}

variable "aws_region" {
  type    = string
  default = "eu-central-1"
}

variable "google_project" {
  type    = string
  default = "my-project"
}

variable "google_zone" {
  type    = string
  default = "europe-west4-b"
}

variable "azure_resource_group" {
  type        = string
  default     = "gpus"
  description = "Where the image will be."
}

variable "azure_location" {
  type    = string
  default = "westeurope"
}

locals {
  # A profile may be a path; Google wants small letters, digits and dashes alone.
  profile    = regex_replace(lower(trimsuffix(basename(var.profile), ".yml")), "[^a-z0-9-]", "-")
  name       = "gpuprep-${local.profile}-${formatdate("YYYYMMDDhhmmss", timestamp())}"
  public_key = trimspace(file("${var.key_file}.pub"))
}

source "amazon-ebs" "builder" {
  region        = var.aws_region
  instance_type = "g4dn.xlarge"
  ami_name      = local.name
  source_ami_filter {
    filters = {
      name                = "debian-12-amd64-*"
      virtualization-type = "hvm"
    }
    owners      = ["136693071363"] # Debian's own account
    most_recent = true
  }
  launch_block_device_mappings {
    device_name           = "/dev/xvda"
    volume_size           = 40
    volume_type           = "gp3"
    delete_on_termination = true
  }
  metadata_options {
    http_tokens = "required"
  }
  user_data            = "#cloud-config\nssh_authorized_keys: ['${local.public_key}']\n"
  ssh_username         = "admin"
  ssh_private_key_file = var.key_file
}

source "googlecompute" "builder" {
  project_id   = var.google_project
  zone         = var.google_zone
  machine_type = "n1-standard-8"
  # A machine with a GPU cannot move to another host.
  accelerator_type        = "projects/${var.google_project}/zones/${var.google_zone}/acceleratorTypes/nvidia-tesla-t4"
  accelerator_count       = 1
  on_host_maintenance     = "TERMINATE"
  source_image_family     = "ubuntu-2404-lts-amd64" # it has cloud-init
  source_image_project_id = ["ubuntu-os-cloud"]
  image_name              = local.name
  image_family            = "gpuprep-${local.profile}"
  disk_size               = 40
  ssh_username            = "packer"
  ssh_private_key_file    = var.key_file
}

source "azure-arm" "builder" {
  use_azure_cli_auth                = true
  location                          = var.azure_location
  vm_size                           = "Standard_NC4as_T4_v3"
  os_type                           = "Linux"
  image_publisher                   = "Debian"
  image_offer                       = "debian-12"
  image_sku                         = "12-gen2"
  os_disk_size_gb                   = 40
  managed_image_name                = local.name
  managed_image_resource_group_name = var.azure_resource_group
  ssh_username                      = "packer"
  ssh_private_key_file              = var.key_file
}

build {
  name    = "gpuprep"
  sources = ["source.amazon-ebs.builder", "source.googlecompute.builder", "source.azure-arm.builder"]

  # From this computer, over SSH. It restarts the builder when the driver needs it, and waits.
  provisioner "shell-local" {
    environment_vars = [
      "BUILD_HOST=${build.Host}",
      "BUILD_PORT=${build.Port}",
      "BUILD_USER=${build.User}",
      "BUILD_KEY=${var.key_file}",
      "PROFILE=${var.profile}",
      "RECORD=${local.name}.json",
    ]
    script = "${path.root}/provision.sh"
  }

  # Nothing may come after this one: it leaves no key with which anybody could log in. The script goes with /tmp.
  provisioner "shell" {
    only            = ["amazon-ebs.builder"]
    script          = "${path.root}/clean.sh"
    execute_command = "sudo sh '{{ .Path }}'"
    skip_clean      = true
    pause_before    = "15s" # after the restart
  }

  provisioner "shell" {
    only            = ["googlecompute.builder"]
    script          = "${path.root}/clean.sh"
    execute_command = "sudo sh '{{ .Path }}' --user packer"
    skip_clean      = true
    pause_before    = "15s"
  }

  provisioner "shell" {
    only            = ["azure-arm.builder"]
    script          = "${path.root}/clean.sh"
    execute_command = "sudo sh '{{ .Path }}' && sudo waagent -force -deprovision+user"
    skip_clean      = true
    pause_before    = "15s"
  }
}
